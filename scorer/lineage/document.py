"""The lineage of an answer: the event, its score or dead letter, the version, and the channel move that deployed it. Pure."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import Message

from model_registry.channels.history import ChannelMove
from publisher.kafka import source_position
from scorer.settings import Settings

SCORE = "score"
DEAD_LETTER = "dead letter"
CORRECTION = "correction"


class InputPosition(NamedTuple):
    """The position of an input event, or of the record that answers it."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        """Return the position as `topic[partition]@offset`."""
        return f"{self.topic}[{self.partition}]@{self.offset}"


@dataclass(frozen=True, slots=True)
class LineageAnswer:
    """One answer to an event: a score, a dead letter or a correction.

    Attributes:
        kind: SCORE, DEAD_LETTER or CORRECTION.
        at: The position of the answer.
        source: The position of the event.
        record: The score record, or the values of the dead letter's headers.
        version: The tag of the model version that answered.
        digest: The digest of that version.
    """

    kind: str
    at: InputPosition
    source: InputPosition
    record: Mapping[str, Any]
    version: str
    digest: str


@dataclass(slots=True)
class Lineage:
    """The lineage of an answer: its event, its version, and the records that show why this version answered.

    A cut-over record states the offset from which a version scores a partition.

    Attributes:
        place: The position of the event.
        event: The event; None if the topic no longer holds it.
        answer: The score or dead letter; None if no topic holds one.
        swap: The cut-over record of the version that answered, for the event's partition; None if there is none.
        instead_of: The cut-over record of the canary, if the canary should have answered but failed; otherwise None.
        move: The move of the channel to the version; None if it is unknown.
        signer: The identity that signed the version; None if it is unknown.
        bucket: The bucket of the event's key in the traffic split, a number from 0 to 9,999; None without a canary.
        corrections: The corrections of the answer.
        missing: One text for each value that could not be read: `<name>: <reason>`.
    """

    place: InputPosition
    event: Message | None = None
    answer: LineageAnswer | None = None
    swap: Mapping[str, Any] | None = None
    instead_of: Mapping[str, Any] | None = None
    move: ChannelMove | None = None
    signer: str | None = None
    bucket: int | None = None
    corrections: list[LineageAnswer] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def place_of(text: str, settings: Settings) -> InputPosition | None:
    """Parse a position: `topic[3]@17`, `topic/3/17`, or `region/topic/3/17` as in headers. Return None for other texts.

    The result is also None if the position is in another region or in a topic that is not an input topic.
    """
    topic, _, rest = text.rpartition("[")
    number, _, offset = rest.partition("]@")
    whole = text if text.count("/") == source_position.PARTS - 1 else f"/{text}"
    with contextlib.suppress(ValueError):
        named = source_position.parse(f"/{topic}/{number}/{offset}" if topic else whole)
        if named.region in ("", settings.region) and named.topic in settings.input.topics:
            return InputPosition(named.topic, named.partition, named.offset)
    return None
