"""Score events with one version without publishing: the results are scores, decisions, or dead-letter reasons."""

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


class EventAnswers:
    """The answers of one version to B events, in one entry or row per event.

    Attributes:
        numbers: (B,) float64, the output on which the version bases its decision; NaN if it is not a single number.
        rows: (B, k) float64, this output if it is a list of k numbers; NaN for events without a score. None if this output is
            not a list of numbers of the same length for each event.
        output: The name of this output; None if it is the only one and has no name.
        several: Whether each score is an object with several outputs.
        outputs: (B,) float64 for each requested output by name: its number for each event; NaN if it is not a single number.
        decisions: The decision of each event; None if there is none.
        scores: The score of each event as JSON; empty without a score.
        ids: The id that each event contains; None for an event without an id.
        rejected: The error of each event without a score, by row.
    """

    def __init__(self, count: int, outputs: Sequence[str] = ()) -> None:
        self.numbers: NDArray[np.float64] = np.full(count, np.nan)
        self.outputs: dict[str, NDArray[np.float64]] = {name: np.full(count, np.nan) for name in outputs}
        self.rows: NDArray[np.float64] | None = None
        self.output: str | None = None
        self.several = False
        self.decisions: list[str | None] = [None] * count
        self.scores: list[bytes] = [b""] * count
        self.ids: list[str | int | None] = [None] * count
        self.rejected: dict[int, Poison] = {}

    def scored(self) -> NDArray[np.bool_]:
        """Return for each event whether it has a score, (B,)."""
        mask = np.ones(len(self.scores), np.bool_)
        mask[list(self.rejected)] = False
        return mask


def answers(
    loaded: LoadedModel, values: Sequence[bytes | None], parts: RecordMetadata, outputs: Sequence[str] = ()
) -> EventAnswers:
    """Score events with a version as a scorer does, except that deadlines are ignored, and return the answers.

    Args:
        loaded: The version.
        values: The values of the events.
        parts: The keys, headers and timestamps of the events.
        outputs: The names of outputs of the version whose numbers are returned too.

    Raises:
        DependencyUnavailable: If a model server or a schema registry is unavailable.
    """
    results = EventAnswers(len(values), outputs)
    decoded = decode_after_look_ups(loaded.decoder, values, parts)
    results.rejected = dict(decoded.rejected)
    for row, id_ in zip(decoded.rows, decoded.ids, strict=True):
        results.ids[row] = id_
    spans = [(0, len(decoded.rows))] if decoded.rows else []
    internal = InternalErrorLog()
    while spans:
        start, stop = spans.pop()
        try:
            _note(results, decoded, start, loaded.score(decoded.select(start, stop)))
        except NO_EVENTS_FAULT:
            raise
        except Exception as error:  # noqa: BLE001 - as in the worker: one event must not stop the others
            if stop - start > 1:
                middle = (start + stop) // 2
                spans += [(middle, stop), (start, middle)]
            else:
                if failed := isinstance(error, InferenceFailed):
                    loaded.check_control_row()
                poison = Poison(Reason.INFERENCE_FAILED, str(error)) if failed else internal.poison(error)
                results.rejected[decoded.rows[start]] = poison
    return results


def _note(results: EventAnswers, decoded: Decoded, start: int, scores: Scores) -> None:
    """Store in `results` the scores of the decoded events from index `start` on."""
    rows = decoded.rows[start:]
    encoded = scores.encoded()
    decisions = scores.decisions()
    finite = scores.finite()
    for at, row in enumerate(rows[: len(encoded)]):
        if finite[at]:
            results.scores[row] = encoded[at]
            results.decisions[row] = decisions[at]
        else:
            error = f"the model answered {encoded[at].decode():.500}, which is not finite"
            results.rejected[row] = Poison(Reason.SCORE_NOT_FINITE, error)
    results.output = scores.decided_output
    results.several = len(scores.columns) > 1
    for name, numbers in results.outputs.items():
        column = scores.columns[name]
        if column.dtype.kind in "biuf" and column.ndim == 1:
            numbers[rows[: len(encoded)]] = np.where(finite, column.astype(np.float64), np.nan)
    column = scores.decided_on()
    if column.dtype.kind not in "biuf":
        return
    if column.ndim == 1:
        results.numbers[rows[: len(encoded)]] = np.where(finite, column.astype(np.float64), np.nan)
    elif column.ndim == 2:
        if results.rows is None:
            results.rows = np.full((len(results.scores), column.shape[1]), np.nan)
        if results.rows.shape[1] == column.shape[1]:
            results.rows[rows[: len(encoded)]] = np.where(finite[:, np.newaxis], column.astype(np.float64), np.nan)
