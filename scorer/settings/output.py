"""The settings of the records that a scorer writes: scores (`output`) and dead letters (`dead_letter`)."""

from typing import Literal

from pydantic import Field

from publisher.runtime.configuration import Section, TopicName
from scorer.settings.carry import CarriedFields

HeaderField = Literal["id", "status", "decision", "model", "version", "digest", "role", "arm", "region"]


class OutputSettings(Section):
    """The topic and the form of score records."""

    topic: TopicName
    """The topic to write scores to."""
    format: Literal["json", "avro", "protobuf"] = "json"
    """The format of a score record."""
    headers: list[HeaderField] = Field(default_factory=list)
    """Fields of the score record that are also written as record headers, such as `[decision, version]`."""
    carry: CarriedFields = Field(default_factory=list)
    """The paths of event fields that are copied into the score record, such as
    `[amount, {path: after.id, as: customer, type: string}]`."""


class DeadLetterSettings(Section):
    """The topic of dead letters."""

    topic: TopicName
    """The topic to write dead letters to; default: the name of the first input topic, followed by `.dead`."""
