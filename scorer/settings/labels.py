"""The settings of labels (`labels`): the topic of true outcomes, and the places of event id and outcome in its records."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from model_registry.package import json_path
from publisher.runtime.configuration import Section, TopicName

KEY = "record:key"
HEADER = "header:"
Class = Annotated[str, Field(min_length=1, max_length=200)]


def _check_id(text: str) -> str:
    """Return the setting `labels.id` in canonical form. Raises ValueError if it is not the key, a header or a path."""
    if text == KEY or (text.startswith(HEADER) and text != HEADER):
        return text
    return json_path.canonical(text)


class LabelSettings(Section):
    """The topic of true outcomes, and how its records are read."""

    topic: TopicName | None = None
    """The topic of true outcomes (labels), which are JSON objects. The newest label of an event is used, however late it is. A
    record whose value is null withdraws the label."""
    id: Annotated[str, AfterValidator(_check_id)] = Field(default=KEY, min_length=1)
    """Where a label contains the id of its event: `record:key`, `header:NAME`, or the path of a field."""
    value: Annotated[str, AfterValidator(json_path.canonical)] = "label"
    """The path of the outcome in a label. The outcome is the name of a decision, true or false, or a number (0 is the first
    class and 1 the second)."""
    kind: Literal["class", "number"] | None = None
    """Whether outcomes are classes or numbers (a regression). If it is not set, scores decide it: outcomes are numbers if the
    scores have no decision and are no probabilities. A training then takes outcomes as classes."""
    classes: list[Class] = Field(default=[], max_length=1_000)
    """All classes, in the order of the score's numbers. A single score is the probability of the second class. If empty, the
    classes are the decisions of the scores."""
    max_events: int = Field(default=200_000, ge=1_000, le=5_000_000)
    """The number of scores and labels that the console keeps to join them. If there are more, the console keeps a sample, which
    is selected by the hash of the id."""

    @model_validator(mode="after")
    def _distinct(self) -> "LabelSettings":
        if len(set(self.classes)) != len(self.classes) or len(self.classes) == 1:
            raise ValueError("classes must list at least two classes, each once; or leave classes out")
        if self.kind == "number" and self.classes:
            raise ValueError("kind is number, but numbers have no classes; remove kind or classes")
        return self
