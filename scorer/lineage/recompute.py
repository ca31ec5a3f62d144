"""Recompute a score with the version that an answer names."""

from dataclasses import dataclass
from typing import Any

import orjson

from model_registry.package.golden import agrees
from publisher.errors import USAGE, Fatal
from scorer.dead_letters.reasons import Poison
from scorer.decoding.record_metadata import ListedMetadata
from scorer.evaluation.score_events import answers
from scorer.lineage.document import DEAD_LETTER, Answer, Explanation
from scorer.models.loaded_model import LoadedModel

SCORED = "scored"  # the status of an answer that has the score of a model


@dataclass(frozen=True, slots=True)
class Proof:
    """A recomputed score. `now` is None if the version now dead-letters the event for the reason `why`."""

    same: bool
    now: Any
    decision: str | None
    why: str = ""


def recompute(found: Explanation, loaded: LoadedModel, tolerance: float) -> Proof:
    """Score the event again with its version, and compare both answers.

    A number may differ by `tolerance` and by the `batch_tolerance` of the signature, because the event is scored alone.

    Raises:
        Fatal: 2 if the event is missing or the answer has no score.
    """
    event, answer = found.event, found.answer
    if event is None or answer is None:
        raise Fatal(f"nothing can be computed again: {'; '.join(found.missing)}", "the event must still be kept", USAGE)
    if (status := answer.record.get("status", SCORED)) != SCORED:
        raise Fatal(f"{found.place} was answered {status!r}, without a score of the model", "leave --recompute out", USAGE)
    tolerance = max(tolerance, loaded.model.signature().batch_tolerance or 0.0)
    again = answers(loaded, [event.value()], ListedMetadata.from_messages([event]))
    if poison := again.rejected.get(0):
        return against(answer, poison, None, None, tolerance)
    return against(answer, None, orjson.loads(again.scores[0]), again.decisions[0], tolerance)


def against(answer: Answer, poison: Poison | None, score: Any, decision: str | None, tolerance: float) -> Proof:
    """Compare an answer with the current result: a rejection, or score and decision."""
    letter = answer.kind == DEAD_LETTER
    if poison is not None:
        return Proof(letter and answer.record.get("reason") == poison.reason, None, None, f"{poison.reason}: {poison}")
    same = agrees(answer.record.get("score"), score, tolerance) and answer.record.get("decision") == decision
    return Proof(same and not letter, score, decision)
