"""Score records, the shadow's, and dead letters, as answers with their source positions. Pure.

Most scores wait for a shadow's answer that never comes, because it scores a share of the events only: a score is read in full
when it has a partner.
"""

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from model_registry.channels.roles import CANARY
from publisher import positions
from publisher.kafka.partitions import Partition
from scorer.dead_letters import headers as dead_letters
from scorer.rollout.judgement.differences import EXPIRED, Answer

SCORED = "scored"
FAILED = ("dead_lettered", "refused")
"""The statuses of the shadow's records of events that its version cannot score."""


class Source(msgspec.Struct, frozen=True, gc=False):
    topic: str
    partition: int
    offset: int


class Placed(msgspec.Struct, frozen=True, gc=False):
    """A record, as far as its place is asked for."""

    source: Source


class Record(msgspec.Struct, frozen=True, gc=False):
    """A record, as far as it is compared."""

    digest: str
    version: str
    role: str
    status: str
    event_ms: int
    id: str = ""
    score: Any = None
    decision: str | None = None
    fallback: str | None = None
    error: str | None = None


class Told(NamedTuple):
    """One answer as it was read: a record in JSON, or what a dead letter says; and the key of its event."""

    said: bytes | Answer
    key: bytes | None


place_of = msgspec.json.Decoder(Placed).decode
record_of = msgspec.json.Decoder(Record).decode
_places_of = msgspec.json.Decoder(Placed).decode_lines


class Unreadable(ValueError):
    """`row` is the first record that is no score. The message says why."""

    def __init__(self, row: int, error: Exception) -> None:
        super().__init__(str(error))
        self.row = row


def places(values: Sequence[bytes | None], as_json: Callable[[bytes], bytes]) -> tuple[list[Placed], list[bytes]]:
    """Where the events of these records stand, and the records as JSON. Raises Unreadable."""
    found: list[bytes] = []
    for row, value in enumerate(values):
        try:
            found.append(as_json(value or b"null"))
        except ValueError as error:
            raise Unreadable(row, error) from error
    with contextlib.suppress(msgspec.MsgspecError):
        if len(told := _places_of(b"\n".join(found))) == len(found):
            return told, found
    return [_place(row, record) for row, record in enumerate(found)], found


def _place(row: int, record: bytes) -> Placed:
    try:
        return place_of(record)
    except msgspec.MsgspecError as error:
        raise Unreadable(row, error) from error


def answer(told: Told) -> Answer:
    """What was told, in full. Raises ValueError for a record that lacks a field."""
    if isinstance(told.said, Answer):
        return told.said
    record = record_of(told.said)
    number = float(record.score) if isinstance(record.score, int | float) else math.nan
    failed = None if record.status == SCORED else EXPIRED
    if record.status in FAILED:
        failed = record.error or record.status
    fallback = record.fallback is not None
    return Answer(record.digest, failed, fallback, record.decision, number, record.id, record.event_ms)


def letter(headers: dead_letters.HeaderList) -> tuple[Partition, int, Answer] | None:
    """Partition and offset of the event of a dead letter, and which version failed. None where its headers do not say."""
    said = dead_letters.facts(headers)
    try:
        source = positions.parse(said.get("source", ""))
    except ValueError:
        return None
    digest = said.get("model", "").partition("@")[2]
    return (source.topic, source.partition), source.offset, Answer(digest, said.get("reason"), said.get("arm") == CANARY)
