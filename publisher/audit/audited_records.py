"""Decode the fields of score, dead-letter and swap records that the audits use, and add them to an audit as arrays.

A swap record reports that another model version takes over a partition.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple, TypeVar

import msgspec
import numpy as np

from model_registry.untrusted_input.json_documents import DocumentDecoder
from publisher.audit.canary_assignment import CHAMPION, Answered
from publisher.audit.event_audit import Audit, AuditedAnswers, Kind
from publisher.audit.version_order import VersionCutover
from publisher.kafka import source_position
from publisher.kafka.headers import headers_of
from publisher.kafka.partitions import Partition
from publisher.kafka.reader import PartitionBatch, Range
from publisher.kafka.source_position import LARGEST_OFFSET, LARGEST_PARTITION, Position

Offset = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_OFFSET)]
PartitionNumber = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_PARTITION)]
RecordT = TypeVar("RecordT")
AsJson = Callable[[bytes], bytes]
"""Converts a score record from the format of the score topics to JSON; raises ValueError for bytes of another format."""
KINDS = {"scored": int(Kind.SCORED), "expired": int(Kind.EXPIRED), "fallback": int(Kind.FALLBACK)}


class Source(msgspec.Struct, gc=False):
    """The position of the scored event in its input topic."""

    topic: str
    partition: PartitionNumber
    offset: Offset


class AuditedScore(msgspec.Struct, gc=False):
    """The fields of a score record that the audits use.

    `digest` identifies the model version that answered the event. `arm` is the role to which the event's key is assigned:
    champion or canary. `role` is the role of the version that answered the event.
    """

    id: str
    status: Literal["scored", "expired", "fallback"]
    digest: str
    source: Source
    arm: str = CHAMPION
    role: str = CHAMPION


class DeadSource(NamedTuple):
    """The events that a dead letter stands for: the offsets `first` to `source.offset`, both inclusive, of one partition.

    `ranged` is true if the dead letter stands for an unreadable batch, and false if it stands for a single event.
    """

    first: int
    source: Position
    ranged: bool


class SwapShares(msgspec.Struct, frozen=True, gc=False):
    """The traffic split in a swap record (see `SwapRecord`). `canary` is the canary's share of the keys in percent."""

    canary: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0


class SwapRecord(msgspec.Struct, gc=False):
    """The fields of a swap record that the audits use.

    A scorer writes a swap record when another model version takes over a partition. `topic_id` is the id of the input topic.
    `history` is the id of the registry channel's history to which `revision` belongs; "" if unknown.

    The first swap record with a new `topic_id` also has the offsets at which the records about events of that topic begin:
    `scores_from[p]` in partition p of the scores, and `letters_from[p]` in partition p of the dead letters.
    """

    topic: str
    partition: PartitionNumber
    cut_over_offset: Offset
    revision: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_OFFSET)]
    digest: str
    topic_id: str = ""
    scores_from: list[Offset] | None = None
    letters_from: list[Offset] | None = None
    shares: SwapShares = SwapShares()
    seed: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{1,16}$")] = "0"
    history: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{0,16}$")] = ""


class DeletedTopicFilter:
    """Recognizes scores and dead letters of a deleted input topic if another topic now has the same name.

    `ids` maps the name of each input topic to its current topic id. If that id is unknown, all swap records that name the
    topic belong to the current topic.
    """

    # Each swap record has the id of its input topic. The first swap record with a new topic id also has the offsets at which
    # the answers to the new topic begin: `scores_from` by partition of the scores, `letters_from` by partition of the dead
    # letters.

    def __init__(self, ids: Mapping[str, str]) -> None:
        self._ids = ids
        self._deleted: set[Partition] = set()
        self._first_offsets: dict[Partition, tuple[list[int], list[int]]] = {}

    def add_swap(self, record: SwapRecord) -> bool:
        """Add a swap record. Return False if it belongs to a deleted input topic."""
        source = record.topic, record.partition
        if record.topic_id not in ("", self._ids.get(record.topic, record.topic_id)):
            self._deleted.add(source)
            return False
        if record.scores_from is not None and record.letters_from is not None:
            self._first_offsets.setdefault(source, (record.scores_from, record.letters_from))
        return True

    def is_deleted(self, source: Partition, output: Partition, offset: int, *, dead: bool = False) -> bool:
        """Return whether an answer (score or dead letter) belongs to a deleted input topic.

        Args:
            source: the input partition of the answered event.
            output: the partition that contains the answer.
            offset: the offset of the answer in `output`.
            dead: whether the answer is a dead letter.
        """
        if source not in self._first_offsets:
            return source in self._deleted
        begins = self._first_offsets[source][dead]
        return output[1] < len(begins) and offset < begins[output[1]]


decode_score = DocumentDecoder(AuditedScore).decode
decode_swap = DocumentDecoder(SwapRecord).decode


def decoded(
    batch: PartitionBatch, decode: Callable[[bytes], RecordT], as_json: AsJson = bytes
) -> Iterator[tuple[int, RecordT | None]]:
    """Yield the offset and the decoded value of each record in a batch; None for a value that cannot be decoded.

    A value is first converted with `as_json`, then decoded with `decode`.
    """
    for offset, message in zip(batch.offsets, batch.messages, strict=True):
        try:
            yield offset, decode(as_json(message.value() or b""))
        except ValueError:  # Unreadable, or of another format
            yield offset, None


def dead_sources(batch: PartitionBatch) -> Iterator[tuple[int, DeadSource | None]]:
    """Yield the offset of each dead letter and the events that it answers; None if its headers do not name them."""
    for offset, headers in zip(batch.offsets, headers_of(batch.messages)[0], strict=True):
        try:
            yield offset, dead_source(headers or ())
        except ValueError:
            yield offset, None


def dead_source(headers: Sequence[tuple[str, str | bytes | None]]) -> DeadSource:
    """Parse the headers `dead.source` and `dead.first` of a dead letter, which name the events that it answers.

    Raises:
        ValueError: if the headers are missing or invalid.
    """
    # Only the last `dead.source`, and a `dead.first` after it, are used. Earlier headers with these names belong to the event.
    source = None
    first = None
    for name, value in headers:
        if name == "dead.source":
            source = source_position.parse(value or b"")
            first = None
        elif name == "dead.first" and source is not None:
            first = source_position.parse_offset(value or b"")
    if source is None:
        raise ValueError("the record has no header dead.source")
    if first is not None and first > source.offset:
        raise ValueError(f"the header dead.first is {first}, which is greater than the offset in dead.source, {source.offset}")
    return DeadSource(source.offset if first is None else first, source, first is not None)


def feed_scores(audit: Audit, batch: PartitionBatch, logs: DeletedTopicFilter, as_json: AsJson = bytes) -> None:
    """Add a batch of score records to the audit. The batches of an output partition must be added in offset order.

    Scores of deleted input topics, which `logs` recognizes, are only counted.
    """
    by_source: dict[Partition, list[AuditedScore]] = {}
    keys: dict[Partition, list[bytes | None]] = {}
    for (offset, record), message in zip(decoded(batch, decode_score, as_json), batch.messages, strict=True):
        if record is None:
            audit.count_unreadable(batch.partition, offset)
        elif logs.is_deleted(source := (record.source.topic, record.source.partition), batch.partition, offset):
            audit.count_deleted(1)
        else:
            by_source.setdefault(source, []).append(record)
            keys.setdefault(source, []).append(message.key())
    for source, records in by_source.items():
        audit.add_answers(_arrays(batch.partition, source, records))
        keyed = zip(records, keys[source], strict=True)
        audit.check_assigned_arms(source, [Answered(score.source.offset, key, score.arm, score.role) for score, key in keyed])


def _arrays(output: Partition, source: Partition, records: list[AuditedScore]) -> AuditedAnswers:
    digests = [record.digest for record in records]
    return AuditedAnswers(
        output=output,
        source=source,
        offsets=np.array([record.source.offset for record in records], np.int64),
        kinds=np.array([KINDS[record.status] for record in records], np.uint8),
        digests=digests[0] if len(set(digests)) == 1 else digests,
        ids=np.array([hash(record.id) for record in records], np.int64),
    )


def feed_dead_letters(audit: Audit, batch: PartitionBatch, logs: DeletedTopicFilter) -> Iterator[tuple[Partition, Range]]:
    """Add a batch of dead letters to the audit. Those of deleted input topics, which `logs` recognizes, are only counted.

    Yields:
        For each dead letter of an unreadable batch, the input partition and the range of offsets.
    """
    columns: dict[Partition, list[int]] = {}
    for offset, event_id in dead_sources(batch):
        if event_id is None:
            audit.count_unreadable(batch.partition, offset)
            continue
        first, (_, topic, number, last), ranged = event_id
        if logs.is_deleted((topic, number), batch.partition, offset, dead=True):
            audit.count_deleted(1)
        elif ranged:
            audit.add_dead_range((topic, number), first, last + 1)
            yield (topic, number), (first, last + 1)
        else:
            columns.setdefault((topic, number), []).append(last)
    for partition, offsets in columns.items():
        kinds = np.full(len(offsets), Kind.DEAD, np.uint8)
        audit.add_answers(AuditedAnswers(batch.partition, partition, np.array(offsets, np.int64), kinds, ""))


def feed_swaps(audit: Audit, batch: PartitionBatch, logs: DeletedTopicFilter) -> None:
    """Add a batch of swap records to the audit. All swap records must be added before the scores and dead letters."""
    for offset, record in decoded(batch, decode_swap):
        if record is None:
            audit.count_unreadable(batch.partition, offset)
        elif logs.add_swap(record):
            swap = VersionCutover(record.cut_over_offset, record.revision, record.digest, record.history)
            audit.add_cutover((record.topic, record.partition), swap, record.shares.canary, int(record.seed, 16))
