"""The constant fallback (`model.fallback`), which answers events while all model servers are unavailable. Pure functions."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson

from scorer.scores.answer import BatchAnswers
from scorer.settings.model import FallbackSettings

FALLBACK = "fallback"  # the status of the constant answers


@dataclass(frozen=True, slots=True)
class ConstantFallback:
    """The configured answer to every event while all model servers are unavailable. `score` is JSON text."""

    score: bytes
    decision: str | None

    @classmethod
    def of(cls, settings: FallbackSettings) -> "ConstantFallback | None":
        return None if settings.score is None else cls(orjson.dumps(settings.score), settings.decision)

    def answer(self, events: int) -> BatchAnswers:
        return BatchAnswers(FALLBACK, [self.score] * events, [self.decision] * events)


def shape_difference(ours: Any, shown: Any, *, lengths: bool, where: str = "score") -> str | None:
    """Compare the JSON structure of a configured score with the JSON structure of a model's score.

    Args:
        ours: the configured score, a JSON value.
        shown: a score of the model, a JSON value.
        lengths: whether arrays must also have the same number of elements.
        where: the name that the returned text gives to the configured score.

    Returns:
        The first difference as text; None if the structures are equal.
    """
    if isinstance(shown, dict):
        if not isinstance(ours, dict) or ours.keys() != shown.keys():
            return f"{where} has to be an object with {', '.join(shown)}"
        return _first_difference(
            shape_difference(ours[name], shown[name], lengths=lengths, where=f"{where}.{name}") for name in shown
        )
    if isinstance(shown, list):
        if not isinstance(ours, list) or (lengths and len(ours) != len(shown)):
            return f"{where} has to be an array{f' of {len(shown)}' if lengths else ''}"
        return _first_difference(
            shape_difference(element, shown[0], lengths=lengths, where=f"{where}[{index}]")
            for index, element in enumerate(ours)
            if shown
        )
    if isinstance(shown, str):
        return None if isinstance(ours, str) else f"{where} has to be a string"
    return None if isinstance(ours, int | float) else f"{where} has to be a number"


def _first_difference(differences: Iterable[str | None]) -> str | None:
    return next((difference for difference in differences if difference), None)
