"""Score records, the shadow's, and dead letters, as answers with their source positions. Pure.

Most scores wait for a shadow's answer that never comes, because it scores a share of the events only: a score is read in full
when it has a partner.
"""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from model_registry.channels.roles import CANARY
from model_registry.untrusted_input import documents
from model_registry.untrusted_input.documents import DocumentDecoder
from publisher.kafka import source_position
from publisher.kafka.partitions import Partition
from scorer.dead_letters import headers as dead_letters
from scorer.native.byte_columns import ByteColumn, Column, some
from scorer.native.librdkafka import librdkafka_plugin
from scorer.native.produce_records import RecordPiece, constant, joined
from scorer.native.source_positions import UNCERTAIN_PLACE, places
from scorer.rollout.canary_analysis.paired_metrics import FAILED, VersionAnswer

RawAnswer = bytes | VersionAnswer
"""One answer as it was read: a record in JSON, or what a dead letter says."""
Read = TypeVar("Read")
Numbers = NDArray[np.int64]
LARGEST_OFFSET = 2**63 - 1
NO_RECORD = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)  # of msgspec, many records in one call


class AnswerPosition(msgspec.Struct, frozen=True, gc=False):
    topic: str
    partition: Annotated[int, msgspec.Meta(ge=-LARGEST_OFFSET, le=LARGEST_OFFSET)]
    offset: Annotated[int, msgspec.Meta(ge=-LARGEST_OFFSET, le=LARGEST_OFFSET)]


class PositionedRecord(msgspec.Struct, frozen=True, gc=False):
    """A record, as far as its place is asked for."""

    source: AnswerPosition


class UnreadableAnswer(ValueError):
    """`row` is the first record that is no score, in what was handed in. The message says why."""

    def __init__(self, row: int, error: Exception) -> None:
        super().__init__(str(error))
        self.row = row


_places, _answers = DocumentDecoder(PositionedRecord), DocumentDecoder(VersionAnswer)
_place_lines, _answer_lines = msgspec.json.Decoder(PositionedRecord), msgspec.json.Decoder(VersionAnswer)
"""Decode many records in one call. If they reject one, or a score is not PLAIN, each is decoded by the reader of documents."""
PLAIN = frozenset({float, str, bool, type(None)})
"""Types of scores, and of the elements of lists, that need no limits: no depth, and no integer of any size."""


class PartitionRows(NamedTuple):
    """Records whose events stand in one partition: their rows, which ascend, (n,), and the offsets of the events, (n,)."""

    rows: Numbers
    offsets: Numbers


def in_json(values: Column, rows: Numbers, as_json: Callable[[bytes], bytes]) -> Column:
    """The same with these rows, (n,), as JSON. Raises Unreadable."""
    if as_json is bytes:
        return values
    found = list(values)
    for row in rows.tolist():
        try:
            found[row] = as_json(found[row] or b"null")
        except ValueError as error:
            raise UnreadableAnswer(row, error) from error
    return found


def group_by_partition(values: Column, rows: Numbers) -> dict[Partition, PartitionRows]:
    """The records of these rows, (n,), by the partition of their events. Most often there is but one. Raises Unreadable."""
    scanned = places(values, rows) if isinstance(values, ByteColumn) else None
    if scanned is None:
        return _lanes(values, rows)
    firsts, offsets = scanned
    found: dict[Partition, PartitionRows] = {}
    for first in np.unique(firsts[firsts != UNCERTAIN_PLACE]).tolist():
        mine = np.flatnonzero(firsts == first)
        (source,) = _sources(values, rows[mine[:1]])
        found[source.topic, source.partition] = PartitionRows(rows[mine], offsets[mine])
    for lane, more in _lanes(values, rows[firsts == UNCERTAIN_PLACE]).items():
        found[lane] = _merged(found[lane], more) if lane in found else more
    return found


def _lanes(values: Column, rows: Numbers) -> dict[Partition, PartitionRows]:
    found = defaultdict[Partition, list[tuple[int, int]]](list)
    for row, source in zip(rows.tolist(), _sources(values, rows), strict=True):
        found[source.topic, source.partition].append((row, source.offset))
    return {lane: PartitionRows(*np.array(each, np.int64).T) for lane, each in found.items()}


def _merged(one: PartitionRows, other: PartitionRows) -> PartitionRows:
    every, offsets = (np.concatenate(each) for each in zip(one, other, strict=True))
    order = np.argsort(every)
    return PartitionRows(every[order], offsets[order])


def _sources(values: Column, rows: Numbers) -> list[AnswerPosition]:
    try:
        return [each.source for each in _read_places([value or b"null" for value in some(values, rows)])]
    except UnreadableAnswer as error:
        raise UnreadableAnswer(int(rows[error.row]), error) from error


def answers(said: Sequence[RawAnswer]) -> list[VersionAnswer]:
    """What was said, in full. Raises Unreadable where a record lacks a field."""
    read = iter(_read_answers([each for each in said if isinstance(each, bytes)]))
    return [next(read) if isinstance(each, bytes) else each for each in said]


def answers_at(values: Column, rows: Numbers) -> list[VersionAnswer]:
    """The answers of these rows, (n,), which have their places, in full. Raises Unreadable, whose row is one of those n."""
    if isinstance(values, ByteColumn) and (native := librdkafka_plugin()) is not None:
        pieces = [RecordPiece(values.part(rows)), constant(b"\n", len(rows))]
        with contextlib.suppress(*NO_RECORD):
            found = _answer_lines.decode_lines(joined(native, pieces, len(rows)).text.data)
            if len(found) == len(rows) and all(_is_plain(each.score) for each in found):
                return found
    return _read_answers([value or b"null" for value in some(values, rows)])


def _is_plain(score: Any) -> bool:
    kind = type(score)
    return kind in PLAIN or (kind is list and PLAIN.issuperset(map(type, score)))


def _together(lines: msgspec.json.Decoder[Read], records: Sequence[bytes]) -> list[Read] | None:
    """Return the records, decoded in one call; None if one of them cannot be, or is an empty line."""
    with contextlib.suppress(*NO_RECORD):
        found = [] if any(map(bytes.isspace, records)) else lines.decode_lines(b"\n".join(records))
        if len(found) == len(records):
            return found
    return None


def _read_answers(records: Sequence[bytes]) -> list[VersionAnswer]:
    found = _together(_answer_lines, records)
    if found is not None and all(_is_plain(each.score) for each in found):
        return found
    return [_one(_answers, row, record) for row, record in enumerate(records)]


def _read_places(records: Sequence[bytes]) -> list[PositionedRecord]:
    found = _together(_place_lines, records)
    return [_one(_places, row, record) for row, record in enumerate(records)] if found is None else found


def _one(decoder: DocumentDecoder[Read], row: int, record: bytes) -> Read:
    try:
        return decoder.decode(record)
    except documents.UnreadableDocument as error:
        raise UnreadableAnswer(row, error) from error


def faults(values: Column, rows: Numbers, as_json: Callable[[bytes], bytes]) -> dict[int, ValueError]:
    """Return what is wrong with each of these rows, (n,), that is no score. For batches in which one is known to be none."""
    found: dict[int, ValueError] = {}
    for row, value in zip(rows.tolist(), some(values, rows), strict=True):
        try:
            record = as_json(value or b"null")
            _places.decode(record)
            _answers.decode(record)
        except ValueError as error:
            found[row] = error
    return found


def read_dead_letter(headers: dead_letters.HeaderList) -> tuple[Partition, int, VersionAnswer] | None:
    """Partition and offset of the event of a dead letter, and which version failed. None where its headers do not say."""
    said = dead_letters.dead_letter_facts(headers)
    try:
        source = source_position.parse(said.get("source", ""))
    except ValueError:
        return None
    digest = said.get("model", "").partition("@")[2]
    fallback = said.get("reason") if said.get("arm") == CANARY else None
    return (source.topic, source.partition), source.offset, VersionAnswer(digest, FAILED, fallback=fallback)
