"""Score records, the shadow's, and dead letters, as answers with their source positions. Pure.

Most scores wait for a shadow's answer that never comes, because it scores a share of the events only: a score is read in full
when it has a partner.
"""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from model_registry.channels.roles import CANARY
from publisher import positions
from publisher.kafka.partitions import Partition
from scorer.dead_letters import headers as dead_letters
from scorer.rollout.judgement.differences import FAILED, Answer

Said = bytes | Answer
"""One answer as it was read: a record in JSON, or what a dead letter says."""
Read = TypeVar("Read")


class Source(msgspec.Struct, frozen=True, gc=False):
    topic: str
    partition: int
    offset: int


class Placed(msgspec.Struct, frozen=True, gc=False):
    """A record, as far as its place is asked for."""

    source: Source


class Unreadable(ValueError):
    """`row` is the first record that is no score. The message says why."""

    def __init__(self, row: int, error: Exception) -> None:
        super().__init__(str(error))
        self.row = row


_places, _answers = msgspec.json.Decoder(Placed), msgspec.json.Decoder(Answer)


def places(values: Sequence[bytes | None], as_json: Callable[[bytes], bytes]) -> tuple[list[Placed], list[bytes]]:
    """Where the events of these records stand, and the records as JSON. Raises Unreadable."""
    try:
        found = [as_json(value or b"null") for value in values]
    except ValueError:
        found = [_as_json(as_json, row, value or b"null") for row, value in enumerate(values)]
    return _decoded(_places, found), found


def _as_json(as_json: Callable[[bytes], bytes], row: int, value: bytes) -> bytes:
    try:
        return as_json(value)
    except ValueError as error:
        raise Unreadable(row, error) from error


def lanes(placed: Sequence[Placed]) -> dict[Partition, Sequence[int]]:
    """The rows of each source partition. Most often there is but one."""
    sources = [each.source for each in placed]
    if len({each.partition for each in sources}) == len({each.topic for each in sources}) == 1:
        return {(sources[0].topic, sources[0].partition): range(len(sources))}
    found = defaultdict[Partition, list[int]](list)
    for row, each in enumerate(sources):
        found[each.topic, each.partition].append(row)
    return dict(found)


def answers(said: Sequence[Said]) -> list[Answer]:
    """What was said, in full. Raises Unreadable where a record lacks a field."""
    read = iter(_decoded(_answers, [each for each in said if isinstance(each, bytes)]))
    return [next(read) if isinstance(each, bytes) else each for each in said]


def _decoded(decoder: msgspec.json.Decoder[Read], records: Sequence[bytes]) -> list[Read]:
    with contextlib.suppress(msgspec.MsgspecError):
        if len(found := decoder.decode_lines(b"\n".join(records))) == len(records):
            return found
    return [_one(decoder, row, record) for row, record in enumerate(records)]


def _one(decoder: msgspec.json.Decoder[Read], row: int, record: bytes) -> Read:
    try:
        return decoder.decode(record)
    except msgspec.MsgspecError as error:
        raise Unreadable(row, error) from error


def letter(headers: dead_letters.HeaderList) -> tuple[Partition, int, Answer] | None:
    """Partition and offset of the event of a dead letter, and which version failed. None where its headers do not say."""
    said = dead_letters.facts(headers)
    try:
        source = positions.parse(said.get("source", ""))
    except ValueError:
        return None
    digest = said.get("model", "").partition("@")[2]
    fallback = said.get("reason") if said.get("arm") == CANARY else None
    return (source.topic, source.partition), source.offset, Answer(digest, FAILED, fallback=fallback)
