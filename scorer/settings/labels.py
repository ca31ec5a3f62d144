"""Where true outcomes are told (`labels`): the topic, and what of its records is the event's id and what the outcome."""

from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from model_registry.package import json_path
from publisher.runtime.configuration import Section, TopicName

KEY, HEADER = "record:key", "header:"
Class = Annotated[str, Field(min_length=1, max_length=200)]


def _place(text: str) -> str:
    """Raises ValueError."""
    if text == KEY or (text.startswith(HEADER) and text != HEADER):
        return text
    return json_path.canonical(text)


class LabelSettings(Section):
    topic: TopicName | None = None
    """A topic of JSON objects that tell what came true. The newest of an id counts, however late; a null value withdraws it."""
    id: Annotated[str, AfterValidator(_place)] = Field(default=KEY, min_length=1)
    """Where a label has its event's id: `record:key`, `header:NAME`, or the path of a field."""
    value: Annotated[str, AfterValidator(json_path.canonical)] = "label"
    """The path of the outcome: a decision's name, true or false, or a number (0 and 1 are the first and the second class)."""
    classes: list[Class] = Field(default=[], max_length=1_000)
    """All classes, in the order of the score's numbers; a high single score says the second. Empty: what the scores decide."""
    max_events: int = Field(default=200_000, ge=1_000, le=5_000_000)
    """How many scores and labels the console keeps to join; of more, those whose ids hash low."""

    @model_validator(mode="after")
    def _distinct(self) -> "LabelSettings":
        if len(set(self.classes)) != len(self.classes) or len(self.classes) == 1:
            raise ValueError("classes are at least two, each once; or leave them out")
        return self
