"""Decode score records, shadow answers and dead letters as answers, each with the source position of its event. Pure.

Most scores wait for a shadow answer that never arrives, because the shadow scores a share of the events only. A score record is
therefore decoded completely only after the shadow answer to the same event has arrived.
"""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from model_registry.channels.roles import CANARY
from model_registry.untrusted_input import json_documents
from model_registry.untrusted_input.json_documents import DocumentDecoder
from publisher.kafka import source_position
from publisher.kafka.partitions import Partition
from scorer.dead_letters import headers as dead_letters
from scorer.native.byte_columns import ByteColumn, Column, take_rows
from scorer.native.librdkafka import librdkafka_plugin
from scorer.native.produce_records import RecordPiece, constant, joined
from scorer.native.source_positions import UNCERTAIN_PLACE, places
from scorer.rollout.canary_analysis.paired_metrics import FAILED, VersionAnswer

RawAnswer = bytes | VersionAnswer
"""An answer as it is stored: an undecoded JSON record, or the answer that was built from the headers of a dead letter."""
Read = TypeVar("Read")
Numbers = NDArray[np.int64]
LARGEST_OFFSET = 2**63 - 1
DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)  # of msgspec, when it decodes many records at once


class AnswerPosition(msgspec.Struct, frozen=True, gc=False):
    """The source position of an event, as stored in the field `source` of a score record or dead letter."""

    topic: str
    partition: Annotated[int, msgspec.Meta(ge=-LARGEST_OFFSET, le=LARGEST_OFFSET)]
    offset: Annotated[int, msgspec.Meta(ge=-LARGEST_OFFSET, le=LARGEST_OFFSET)]


class PositionedRecord(msgspec.Struct, frozen=True, gc=False):
    """The record of an answer. Only its source position is decoded."""

    source: AnswerPosition


class UnreadableAnswer(ValueError):
    """Raised for a record that is not a score; the message states the reason.

    Attributes:
        row: The index of the first unreadable record in the sequence of records.
    """

    def __init__(self, row: int, error: Exception) -> None:
        super().__init__(str(error))
        self.row = row


_places = DocumentDecoder(PositionedRecord)
_answers = DocumentDecoder(VersionAnswer)
_place_lines = msgspec.json.Decoder(PositionedRecord)
_answer_lines = msgspec.json.Decoder(VersionAnswer)
"""Decoders of many newline-separated records in one call.

If a record is rejected, or a score is not of a PLAIN type, DocumentDecoder decodes each record on its own.
"""
PLAIN = frozenset({float, str, bool, type(None)})
"""Types of scores, and of list elements, that need no check of nesting depth or of integer size."""


class PartitionRows(NamedTuple):
    """The answers in a batch of fetched records that belong to the events of one source partition.

    Attributes:
        rows: The indices of these answers in the batch, ascending, (n,).
        offsets: The offset of each answer's event, (n,).
    """

    rows: Numbers
    offsets: Numbers


def in_json(values: Column, rows: Numbers, as_json: Callable[[bytes], bytes]) -> Column:
    """Return `values`, in which `as_json` has converted the values at the indices `rows`, (n,), to JSON.

    Raises:
        UnreadableAnswer: If a value cannot be converted.
    """
    if as_json is bytes:
        return values
    records = list(values)
    for row in rows.tolist():
        try:
            records[row] = as_json(records[row] or b"null")
        except ValueError as error:
            raise UnreadableAnswer(row, error) from error
    return records


def group_by_partition(values: Column, rows: Numbers) -> dict[Partition, PartitionRows]:
    """Group the records at the indices `rows`, (n,), by the partition of their events.

    Usually, the events of a batch are all from one partition.

    Raises:
        UnreadableAnswer: If a record has no source position.
    """
    scanned = places(values, rows) if isinstance(values, ByteColumn) else None
    if scanned is None:
        return _rows_by_partition(values, rows)
    firsts, offsets = scanned
    groups: dict[Partition, PartitionRows] = {}
    for first in np.unique(firsts[firsts != UNCERTAIN_PLACE]).tolist():
        members = np.flatnonzero(firsts == first)
        (source,) = _sources(values, rows[members[:1]])
        groups[source.topic, source.partition] = PartitionRows(rows[members], offsets[members])
    for lane, more in _rows_by_partition(values, rows[firsts == UNCERTAIN_PLACE]).items():
        groups[lane] = _merged(groups[lane], more) if lane in groups else more
    return groups


def _rows_by_partition(values: Column, rows: Numbers) -> dict[Partition, PartitionRows]:
    groups = defaultdict[Partition, list[tuple[int, int]]](list)
    for row, source in zip(rows.tolist(), _sources(values, rows), strict=True):
        groups[source.topic, source.partition].append((row, source.offset))
    return {lane: PartitionRows(*np.array(each, np.int64).T) for lane, each in groups.items()}


def _merged(first: PartitionRows, second: PartitionRows) -> PartitionRows:
    rows, offsets = (np.concatenate(each) for each in zip(first, second, strict=True))
    order = np.argsort(rows)
    return PartitionRows(rows[order], offsets[order])


def _sources(values: Column, rows: Numbers) -> list[AnswerPosition]:
    try:
        return [each.source for each in _read_places([value or b"null" for value in take_rows(values, rows)])]
    except UnreadableAnswer as error:
        raise UnreadableAnswer(int(rows[error.row]), error) from error


def answers(raw: Sequence[RawAnswer]) -> list[VersionAnswer]:
    """Decode raw answers, and return them in the same order.

    Raises:
        UnreadableAnswer: If a record lacks a field.
    """
    decoded = iter(_read_answers([each for each in raw if isinstance(each, bytes)]))
    return [next(decoded) if isinstance(each, bytes) else each for each in raw]


def answers_at(values: Column, rows: Numbers) -> list[VersionAnswer]:
    """Decode the answers at the indices `rows`, (n,), of `values`.

    The rows must have passed `group_by_partition`.

    Raises:
        UnreadableAnswer: If a record lacks a field. The attribute `row` of the error is an index into `rows`.
    """
    if isinstance(values, ByteColumn) and (native := librdkafka_plugin()) is not None:
        pieces = [RecordPiece(values.part(rows)), constant(b"\n", len(rows))]
        with contextlib.suppress(*DECODE_ERRORS):
            decoded = _answer_lines.decode_lines(joined(native, pieces, len(rows)).text.data)
            if len(decoded) == len(rows) and all(_is_plain(each.score) for each in decoded):
                return decoded
    return _read_answers([value or b"null" for value in take_rows(values, rows)])


def _is_plain(score: Any) -> bool:
    kind = type(score)
    return kind in PLAIN or (kind is list and PLAIN.issuperset(map(type, score)))


def _together(lines: msgspec.json.Decoder[Read], records: Sequence[bytes]) -> list[Read] | None:
    """Decode the records in one call of the decoder `lines`; return None if a record cannot be decoded."""
    with contextlib.suppress(*DECODE_ERRORS):
        decoded = [] if any(map(bytes.isspace, records)) else lines.decode_lines(b"\n".join(records))
        if len(decoded) == len(records):
            return decoded
    return None


def _read_answers(records: Sequence[bytes]) -> list[VersionAnswer]:
    decoded = _together(_answer_lines, records)
    if decoded is not None and all(_is_plain(each.score) for each in decoded):
        return decoded
    return [_one(_answers, row, record) for row, record in enumerate(records)]


def _read_places(records: Sequence[bytes]) -> list[PositionedRecord]:
    decoded = _together(_place_lines, records)
    return [_one(_places, row, record) for row, record in enumerate(records)] if decoded is None else decoded


def _one(decoder: DocumentDecoder[Read], row: int, record: bytes) -> Read:
    try:
        return decoder.decode(record)
    except json_documents.UnreadableDocument as error:
        raise UnreadableAnswer(row, error) from error


def faults(values: Column, rows: Numbers, as_json: Callable[[bytes], bytes]) -> dict[int, ValueError]:
    """Decode the records at the indices `rows`, (n,), and return the error of each unreadable record by its index."""
    # The records are decoded one by one, which is slow. Call this only for a batch in which a record is unreadable.
    errors: dict[int, ValueError] = {}
    for row, value in zip(rows.tolist(), take_rows(values, rows), strict=True):
        try:
            record = as_json(value or b"null")
            _places.decode(record)
            _answers.decode(record)
        except ValueError as error:
            errors[row] = error
    return errors


def read_dead_letter(headers: dead_letters.HeaderList) -> tuple[Partition, int, VersionAnswer] | None:
    """Return the partition and the offset of a dead letter's event, and the answer of the version that failed on the event.

    Returns:
        None if the headers do not contain the source position.
    """
    facts = dead_letters.dead_letter_facts(headers)
    try:
        source = source_position.parse(facts.get("source", ""))
    except ValueError:
        return None
    digest = facts.get("model", "").partition("@")[2]
    fallback = facts.get("reason") if facts.get("arm") == CANARY else None
    return (source.topic, source.partition), source.offset, VersionAnswer(digest, FAILED, fallback=fallback)
