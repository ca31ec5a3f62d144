"""The Kafka records that the console reads: version changes, scores and dead letters. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from confluent_kafka import Message

from model_registry.untrusted_input import json_documents
from model_registry.untrusted_input.json_documents import Int64, Unix
from publisher.kafka.partitions import Partition
from scorer.dead_letters import headers as dead_letter_headers
from scorer.scores.decode_record import CompleteScoreRecord, decode_complete_record

LATEST_DATE_MS = 10**14  # some 3,000 years from now
SHOWN_BYTES = 4_000  # of a dead letter's key, value and headers
RecordType = TypeVar("RecordType")


class VersionChange(msgspec.Struct, frozen=True):
    """A record of a version change in one partition; `cut_over_offset` is the first offset that the new version scored."""

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
        """The topic and the number of the partition."""
        return self.topic, self.partition


def largest(score: Any) -> float | None:
    """Return the largest number in a score, including nested lists and objects; None without a number."""
    if isinstance(score, int | float):
        return float(score)
    if isinstance(score, dict):
        score = list(score.values())
    parts = score if isinstance(score, list) else ()
    return max((number for part in parts if (number := largest(part)) is not None), default=None)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter for display.

    Attributes:
        at_ms: When the event was dead-lettered, in Unix ms.
        cut: Whether `value` is only the beginning of the event's value.
        unfit: Why a replay cannot write the dead letter back; empty if it can.
    """

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


def decode(value: bytes | None, type_: type[RecordType]) -> RecordType | None:
    """Decode a record from JSON; None if it is not a record of the given type."""
    try:
        return json_documents.decode(value, type_)
    except json_documents.UnreadableDocument:
        return None


def decode_score(value: bytes) -> CompleteScoreRecord | None:
    """Decode a score record from JSON; None if it is not a score record, or its time is out of range."""
    try:
        record = decode_complete_record(value)
    except json_documents.UnreadableDocument:
        return None
    return record if max(record.event_ms, record.scored_ms) <= LATEST_DATE_MS else None


def dead_letter(message: Message, headers: Sequence[tuple[str, str | bytes | None]], unfit: str = "") -> DeadLetter:
    """Return a record of the dead-letter topic as a DeadLetter for display.

    Args:
        message: The record.
        headers: The headers of the record. If they do not contain the time of dead-lettering, the record's timestamp is used.
        unfit: Why a replay cannot write the dead letter back; empty if it can.
    """
    facts = dead_letter_headers.dead_letter_facts(headers)
    value = message.value()
    return DeadLetter(
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        reason=facts.get("reason") or dead_letter_headers.NO_REASON,
        error=facts.get("error", ""),
        source=facts.get("source", ""),
        model=facts.get("model", ""),
        at_ms=dead_letter_headers.dead_lettered_ms(facts, message.timestamp()[1]),
        key=_text(message.key()),
        value=_text(value),
        cut=len(value or b"") > SHOWN_BYTES,
        headers=tuple((name, _text(_bytes(value))) for name, value in dead_letter_headers.original_headers(headers)),
        unfit=unfit,
    )


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _text(value: bytes | None) -> str:
    return (value or b"")[:SHOWN_BYTES].decode("utf-8", "backslashreplace")
