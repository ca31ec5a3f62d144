"""Score the event of an answer again with the version that answered it, and compare the results."""

from dataclasses import dataclass
from typing import Any

import orjson

from model_registry.package.golden_examples import agrees
from publisher.errors import USAGE, Fatal
from scorer.dead_letters.reasons import Poison
from scorer.decoding.record_metadata import ListedMetadata
from scorer.evaluation.score_events import answers
from scorer.lineage.document import DEAD_LETTER, Lineage, LineageAnswer
from scorer.models.loaded_model import LoadedModel

SCORED = "scored"  # the status of an answer with a score of a model


@dataclass(frozen=True, slots=True)
class Recomputation:
    """A recomputed score, compared with the answer.

    Attributes:
        same: Whether the recomputed score and decision equal those of the answer.
        now: The recomputed score; None if the version now dead-letters the event.
        decision: The recomputed decision; None if there is none.
        rejection: Why the version now dead-letters the event; empty if it scores the event.
    """

    same: bool
    now: Any
    decision: str | None
    rejection: str = ""


def recompute(lineage: Lineage, loaded: LoadedModel, tolerance: float) -> Recomputation:
    """Score the event again with the version that answered it, and compare both results.

    A number may differ by the larger of `tolerance` and the `batch_tolerance` of the signature, because the event is now scored
    in a batch of one event.

    Raises:
        Fatal: With code 2 if the event is missing or the answer has no score.
    """
    event = lineage.event
    answer = lineage.answer
    if event is None or answer is None:
        raise Fatal(
            f"the score cannot be recomputed: {'; '.join(lineage.missing)}",
            "choose an event that its topic still retains",
            USAGE,
        )
    if (status := answer.record.get("status", SCORED)) != SCORED:
        raise Fatal(f"{lineage.place} has the status {status!r} and no score of the model", "omit --recompute", USAGE)
    tolerance = max(tolerance, loaded.model.signature().batch_tolerance or 0.0)
    results = answers(loaded, [event.value()], ListedMetadata.from_messages([event]))
    if poison := results.rejected.get(0):
        return compare_with(answer, poison, None, None, tolerance)
    return compare_with(answer, None, orjson.loads(results.scores[0]), results.decisions[0], tolerance)


def compare_with(
    answer: LineageAnswer, poison: Poison | None, score: Any, decision: str | None, tolerance: float
) -> Recomputation:
    """Compare an answer with the new result of its event.

    The new result is the error `poison` if the version now dead-letters the event. Otherwise `poison` is None, and the new
    result is `score` and `decision`. Two scores may differ by `tolerance`.
    """
    letter = answer.kind == DEAD_LETTER
    if poison is not None:
        return Recomputation(letter and answer.record.get("reason") == poison.reason, None, None, f"{poison.reason}: {poison}")
    same = agrees(answer.record.get("score"), score, tolerance) and answer.record.get("decision") == decision
    return Recomputation(same and not letter, score, decision)
