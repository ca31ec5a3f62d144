"""What stands on the bus, decoded: swaps, scores and dead letters, as far as the console shows them. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from confluent_kafka import Message

from model_registry.untrusted_input import documents
from model_registry.untrusted_input.documents import Int64, Unix
from publisher.kafka.partitions import Partition
from scorer.dead_letters import headers as dead_letter

SHOWN_BYTES = 4_000  # of a dead letter's value; a person looks, a program replays
RecordType = TypeVar("RecordType")


class VersionChange(msgspec.Struct, frozen=True):
    """One partition's change of version. `cut_over_offset` is the first offset that the new one scored."""

    scorer: str
    topic: str
    partition: Int64
    cut_over_offset: Int64
    version: str
    digest: str
    revision: Int64
    at_ms: Unix
    from_version: str | None = None
    reason: str = ""
    role: str = "champion"

    @property
    def place(self) -> Partition:
        return self.topic, self.partition


class EventPosition(msgspec.Struct, frozen=True):
    topic: str
    partition: Int64
    offset: Int64


class SampledScore(msgspec.Struct, frozen=True):
    """A score. Times are Unix ms; `score` is a number, an array, named outputs, or None where the event had expired. `arm` is
    whose turn the event was, `fallback` why another answered it."""

    version: str
    status: str
    source: EventPosition
    event_ms: Unix
    scored_ms: Unix
    score: Any = None
    decision: str | None = None
    id: str = ""
    arm: str = ""
    revision: Int64 = 0
    fallback: str | None = None
    digest: str = ""

    @property
    def number(self) -> float | None:
        """The score as one number: of several classes the largest; None where it has none."""
        return largest(self.score)


def largest(score: Any) -> float | None:
    """Return a number itself, of a list the largest number in it, also of named classes (`{"label": ..., "score": ...}`)."""
    if isinstance(score, int | float):
        return float(score)
    parts = score.values() if isinstance(score, dict) else score if isinstance(score, list) else ()
    return max((found for part in parts if (found := largest(part)) is not None), default=None)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter as a person looks at it. `at_ms` is Unix ms; `cut` says that `value` is not whole; `unfit` is why a replay
    leaves it out, empty if it does not."""

    partition: int
    offset: int
    reason: str
    error: str
    source: str
    model: str
    at_ms: int
    key: str
    value: str
    cut: bool
    headers: tuple[tuple[str, str], ...]
    unfit: str = ""


def decoded(value: bytes | None, type_: type[RecordType]) -> RecordType | None:
    """The record that is the value, as JSON; None if it is none of that type."""
    try:
        return documents.decode(value, type_)
    except documents.UnreadableDocument:
        return None


def letter(message: Message, headers: Sequence[tuple[str, str | bytes | None]], unfit: str = "") -> DeadLetter:
    """A record of the dead-letter topic. One that does not say when it died has its timestamp."""
    facts, value = dead_letter.facts(headers), message.value()
    return DeadLetter(
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        reason=facts.get("reason") or dead_letter.NO_REASON,
        error=facts.get("error", ""),
        source=facts.get("source", ""),
        model=facts.get("model", ""),
        at_ms=dead_letter.died_ms(facts, message.timestamp()[1]),
        key=_text(message.key()),
        value=_text(value),
        cut=len(value or b"") > SHOWN_BYTES,
        headers=tuple((name, _text(_bytes(held))) for name, held in dead_letter.original_headers(headers)),
        unfit=unfit,
    )


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _text(value: bytes | None) -> str:
    return (value or b"")[:SHOWN_BYTES].decode("utf-8", "backslashreplace")
