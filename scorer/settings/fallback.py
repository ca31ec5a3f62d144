"""What is answered while the model servers are away (`model.fallback`)."""

import math
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from publisher.runtime.configuration import Section

MOST_VALUES = 10_000


def _usable(score: Any) -> Any:
    """Raises ValueError. None is no score."""
    if score is None:
        return None
    count = 0
    for leaf in _leaves(score):
        count += 1
        if isinstance(leaf, bool) or leaf is None or (isinstance(leaf, float) and not math.isfinite(leaf)):
            raise ValueError(f"{leaf!r} is no score: give finite numbers, as the model does")
    if not 0 < count <= MOST_VALUES:
        raise ValueError(f"a score has from 1 to {MOST_VALUES} numbers, this one {count}")
    return score


def _leaves(value: Any) -> Iterator[Any]:
    inner = list(value.values()) if isinstance(value, dict) else value
    if isinstance(inner, list):
        for each in inner:
            yield from _leaves(each)
    else:
        yield inner


class FallbackSettings(Section):
    score: Annotated[Any, AfterValidator(_usable)] = None
    """What events are answered while all model servers are away, shaped as the model's scores; without it they wait."""
    decision: str | None = Field(default=None, max_length=200)
    """The decision beside it; it need not be one of the model's."""
    after_ms: float = Field(default=5_000.0, ge=0, le=86_400_000)
    """How long all model servers must have been away (ms); until then events wait."""

    @model_validator(mode="after")
    def _decided_with_a_score(self) -> "FallbackSettings":
        if self.score is None and self.decision is not None:
            raise ValueError("decision stands beside a score; give score too, or leave it out")
        return self
