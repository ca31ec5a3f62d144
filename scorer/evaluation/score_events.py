"""The answers of one version to events, without publishing them: scores, decisions, or dead-letter reasons."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from publisher.errors import Aborted, Fatal, Retriable
from scorer.backends.base import InferenceFailed
from scorer.dead_letters.internal_error import InternalErrorLog
from scorer.dead_letters.reasons import Poison, Reason
from scorer.decoding.record_metadata import RecordMetadata
from scorer.decoding.types import Decoded, decode_after_look_ups
from scorer.models.loaded_model import LoadedModel
from scorer.scores.outputs import Scores

NO_EVENTS_FAULT = (Retriable, Aborted, Fatal)


class Answers:
    """Answers to B events.

    `numbers` (B,) float64 has the deciding output if it is one number, NaN elsewhere; `output` is its name, None for the only
    output;
    `several` states whether a score has other outputs. `decisions` (None: none), `scores` (JSON) and `ids` (from the values,
    None: none) have
    an entry per event; `rejected` has the errors of the events without a score.
    """

    def __init__(self, count: int) -> None:
        self.numbers: NDArray[np.float64] = np.full(count, np.nan)
        self.output: str | None = None
        self.several = False
        self.decisions: list[str | None] = [None] * count
        self.scores: list[bytes] = [b""] * count
        self.ids: list[str | int | None] = [None] * count
        self.rejected: dict[int, Poison] = {}

    def scored(self) -> NDArray[np.bool_]:
        """Return (B,) booleans: the events with a score."""
        found = np.ones(len(self.scores), np.bool_)
        found[list(self.rejected)] = False
        return found


def answers(loaded: LoadedModel, values: Sequence[bytes | None], parts: RecordMetadata) -> Answers:
    """Return the answers of this version like a scorer, except that deadlines are ignored. Raises DependencyUnavailable."""
    found = Answers(len(values))
    decoded = decode_after_look_ups(loaded.decoder, values, parts)
    found.rejected = dict(decoded.rejected)
    for row, id_ in zip(decoded.rows, decoded.ids, strict=True):
        found.ids[row] = id_
    spans = [(0, len(decoded.rows))] if decoded.rows else []
    internal = InternalErrorLog()
    while spans:
        start, stop = spans.pop()
        try:
            _note(found, decoded, start, loaded.score(decoded.select(start, stop)))
        except NO_EVENTS_FAULT:
            raise
        except Exception as error:  # noqa: BLE001 - as in the loop: one event must not stop the others
            if stop - start > 1:
                middle = (start + stop) // 2
                spans += [(middle, stop), (start, middle)]
            else:
                if failed := isinstance(error, InferenceFailed):
                    loaded.vouch()
                poison = Poison(Reason.INFERENCE_FAILED, str(error)) if failed else internal.poison(error)
                found.rejected[decoded.rows[start]] = poison
    return found


def _note(found: Answers, decoded: Decoded, start: int, scores: Scores) -> None:
    """Store the scores of the good events from `start` on."""
    rows, encoded, decisions, finite = decoded.rows[start:], scores.encoded(), scores.decisions(), scores.finite()
    for at, row in enumerate(rows[: len(encoded)]):
        if finite[at]:
            found.scores[row], found.decisions[row] = encoded[at], decisions[at]
        else:
            error = f"the model answered {encoded[at].decode():.500}, which is not finite"
            found.rejected[row] = Poison(Reason.SCORE_NOT_FINITE, error)
    found.output, found.several = scores.decided_output, len(scores.columns) > 1
    column = scores.decided_on()
    if column.ndim == 1 and column.dtype.kind in "biuf":
        found.numbers[rows[: len(encoded)]] = np.where(finite, column.astype(np.float64), np.nan)
