"""What one version makes of events, without a record of it: scores, decisions, or why an event would be dead-lettered."""

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
    """Of B events. `numbers` (B,) float64 has the output that the version decides on where that is one number, NaN elsewhere;
    `output` is its name, None for the only output, and `several` whether a score has others beside it; `decisions`
    (None: none), `scores` (JSON) and `ids` (those in the values, None: none) have an entry for each event; `rejected` says what
    is wrong with those that are not scored."""

    def __init__(self, count: int) -> None:
        self.numbers: NDArray[np.float64] = np.full(count, np.nan)
        self.output: str | None = None
        self.several = False
        self.decisions: list[str | None] = [None] * count
        self.scores: list[bytes] = [b""] * count
        self.ids: list[str | int | None] = [None] * count
        self.rejected: dict[int, Poison] = {}

    def scored(self) -> NDArray[np.bool_]:
        """(B,) booleans."""
        found = np.ones(len(self.scores), np.bool_)
        found[list(self.rejected)] = False
        return found


def answers(loaded: LoadedModel, values: Sequence[bytes | None], parts: RecordMetadata) -> Answers:
    """The answers of this version, those of a scorer but for deadlines, which are not minded. Raises Away."""
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
    """Take in the scores of the good events from `start` on."""
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
