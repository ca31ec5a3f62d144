"""The checkpoints of relays: the positions of their copies, as records of a compacted topic at the destination.

A checkpoint is written in the same transaction as the copies before it. The topic also has the registration of each relay and,
if the relay follows consumer groups, the last snapshot of its source. Encoding is pure; `CheckpointLog` reads the topic.
"""

# Relays share the topic, so every relay can write any record to it. An unreadable record is logged and skipped. Such a record
# stops only the relay that the record's key names, because this relay's position, or its number of copying threads to fence, is
# unknown.

import logging
from typing import Annotated, NamedTuple, TypeVar
from urllib.parse import quote, unquote

import msgspec

from model_registry.untrusted_input.json_documents import Count, DocumentDecoder, Int64, Unix, UnreadableDocument
from publisher.errors import REFUSED, Fatal
from publisher.kafka.groups import GroupPosition
from publisher.kafka.partitions import Offsets
from publisher.kafka.reader import TopicReader
from publisher.kafka.source_position import LARGEST_PARTITION
from publisher.transactions.session import Record

log = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")

TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": "8388608",  # compaction skips the newest segment, and every start reads all of it
    "min.cleanable.dirty.ratio": "0.1",
    "retention.ms": "-1",
}
NO_CHECKPOINTS_HINT = "check the settings name and checkpoint_topic, and that this relay has run"
SEPARATOR = "/"
SOURCE_SNAPSHOT = "source"
MAX_LANES = 1_024  # in a registration: its reader fences the transactional ids of all these lanes


class CheckpointKey(NamedTuple):
    """Identifies a checkpoint: the relay's name, and the region, topic and partition of the source."""

    relay: str
    region: str
    topic: str
    partition: int


class Checkpoint(msgspec.Struct, frozen=True):
    """The position of a relay in a source partition, with the ids and offsets that the relay verifies when it starts.

    Attributes:
        next: the next source offset to read.
        cluster: the id of the source cluster.
        topic_id: the id of the source topic.
        destination_cluster: the id of the destination cluster.
        destination_topic: the name of the destination topic.
        destination_topic_id: the id of the destination topic.
        copied: the last source offset before `next` that was copied; -1 if none, or unknown.
        epoch: the leader epoch of the last source record before `next`; -1 if there is none.
        timestamp_ms: the Kafka timestamp of the last source record before `next`; -1 if there is none.
        at_ms: when the checkpoint was written (Unix ms).
        copies_from: the destination offset at which the copies of this source topic begin. Earlier copies belong to a deleted
            source topic of the same name.
    """

    next: Count
    cluster: str
    topic_id: str
    destination_cluster: str
    destination_topic: str
    destination_topic_id: str
    copied: Int64 = -1
    epoch: Int64 = -1
    timestamp_ms: Int64 = -1
    at_ms: Int64 = 0
    copies_from: Int64 = 0


class Registration(msgspec.Struct, frozen=True):
    """The record of the process that started last under a relay's name.

    Attributes:
        lanes: the number of copying threads whose transactional ids the next process must fence.
        instance: a random id of the process.
        command: the command of the process.
        host: the host name.
        pid: the process id.
        at_ms: when the process registered (Unix ms).
    """

    # A process that reads another `instance` than its own has been replaced.

    lanes: Annotated[int, msgspec.Meta(ge=0, le=MAX_LANES)]
    instance: str
    command: str = msgspec.field(name="what")
    host: str
    pid: Int64
    at_ms: Int64


class SourceEnd(msgspec.Struct, frozen=True):
    """The end offset of a source partition."""

    topic: str
    partition: Int64
    end: Int64


class SourceSnapshot(msgspec.Struct, frozen=True):
    """The last known state of a relay's source. Times are Unix ms.

    Attributes:
        cluster: the id of the source cluster.
        asked_ms: when the state was requested.
        complete_ms: a time up to which the copy is complete: every record that the source contained at this time has been
            copied; 0 if no such time is known.
        ends: the end offsets of the partitions.
        groups: the committed positions of each consumer group.
    """

    cluster: str
    asked_ms: Unix
    complete_ms: Unix
    ends: tuple[SourceEnd, ...]
    groups: dict[str, tuple[GroupPosition, ...]]


encode = msgspec.json.Encoder().encode
_checkpoint_decoder = DocumentDecoder(Checkpoint)
_snapshot_decoder = DocumentDecoder(SourceSnapshot)
_registration_decoder = DocumentDecoder(Registration)


def encode_key(*parts: str | int) -> bytes:
    """Return the key of a record in the checkpoint topic.

    Args:
        *parts: for a position, the fields of its CheckpointKey; for a registration, the relay's name; for a source snapshot,
            the relay's name and SOURCE_SNAPSHOT.
    """
    return SEPARATOR.join(quote(str(part), safe="") for part in parts).encode("ascii")


def record(topic: str, key: bytes, value: bytes | None) -> Record:
    """Return a record for the checkpoint topic. A value of None deletes the key."""
    return topic, value, key, -1, 0, None


def parse_key(text: bytes) -> CheckpointKey | tuple[str] | str:
    """Parse the key of a record in the checkpoint topic.

    Returns:
        For a position, its CheckpointKey. For a registration, the relay's name. For a source snapshot, a tuple that contains
        only the relay's name.

    Raises:
        ValueError: for any other key.
    """
    parts = [unquote(part, errors="strict") for part in text.decode("ascii").split(SEPARATOR)]
    match parts:
        case [relay]:
            return relay
        case [relay, kind] if kind == SOURCE_SNAPSHOT:
            return (relay,)
        case [relay, region, topic, partition] if partition.isdecimal() and int(partition) <= LARGEST_PARTITION:
            return CheckpointKey(relay, region, topic, int(partition))
    raise ValueError(f"{text!r} is not a valid checkpoint key")


class CheckpointLog:
    """The positions, registrations and source snapshots of all relays, as of the last `refresh`.

    Methods raise Fatal: with exit code 4 if the broker does not answer, 3 if it rejects the request, 2 if the topic does not
    exist. They also raise Fatal (exit code 3) if a position or the registration of `relay` is unreadable, unless `repairing` is
    true because the caller replaces unreadable records.

    Attributes:
        unreadable: for each key whose newest record is unreadable, the location of that record and the error. The key keeps its
            last readable value in the other attributes.
        positions: the checkpoints by key.
        registrations: the registrations by relay.
        snapshots: the source snapshots by relay.
    """

    def __init__(self, reader: TopicReader, topic: str, relay: str, *, repairing: bool = False) -> None:
        self.topic = topic
        self.unreadable: dict[bytes, str] = {}
        self._relay = relay
        self._repairing = repairing
        self.reader = reader
        self.positions: dict[CheckpointKey, Checkpoint] = {}
        self.registrations: dict[str, Registration] = {}
        self.snapshots: dict[str, SourceSnapshot] = {}
        self._first_written: dict[CheckpointKey, tuple[int | None, int | None]] = {}
        self._read: Offsets = {}

    def refresh(self) -> None:
        """Read the checkpoint topic up to its current end. Waits until open transactions in it are committed or aborted."""
        # An open transaction hides all later records, including those of committed transactions.
        self._read_to(self.reader.written(self.reader.partitions([self.topic])))

    def refresh_visible(self, relay: str) -> None:
        """Read the checkpoint topic up to its last stable offset, without waiting for open transactions.

        If a registration of `relay` follows the last stable offset, wait until it can be read.
        """
        # These records are enough to decide which transactional ids to fence. Transactions of a killed process stay open until
        # the caller fences them or until they time out, so it would be useless to wait for them.
        ends = self.reader.written(self.reader.partitions([self.topic]))
        visible = self.reader.visible(ends)
        self._read_to(visible)
        hidden = self.reader.read({partition: (visible[partition], end) for partition, end in ends.items()}, undecided=True)
        if any(message.key() == encode_key(relay) for batch in hidden for message in batch.messages):
            self._read_to(ends)

    def _read_to(self, ends: Offsets) -> None:
        starts = self._read or self.reader.earliest(ends)
        for batch in self.reader.read({partition: (starts.get(partition, 0), end) for partition, end in ends.items()}):
            for message in batch.messages:
                self._apply(message.key() or b"", message.value(), (message.partition(), message.offset()))
        self._read = ends
        self._refuse_unreadable()

    def _refuse_unreadable(self) -> None:
        """Raise Fatal if a position or the registration of the relay is unreadable, unless `repairing` is set."""
        for record_key, error in [] if self._repairing else self.unreadable.items():
            match parse_key(record_key):
                case CheckpointKey() as key if key.relay == self._relay:
                    hint = f"publisher checkpoint set CONFIG --topic {key.topic} --partition {key.partition} --to OFFSET"
                    raise Fatal(f"the position of {key.topic}[{key.partition}] is unreadable: {error}", hint, REFUSED)
                case str() as relay if relay == self._relay:
                    hint = (
                        "stop every process of this relay, then run `publisher checkpoint set`, which writes a new registration"
                    )
                    raise Fatal(f"the registration of relay {relay!r} is unreadable: {error}", hint, REFUSED)

    def unreadable_positions(self) -> list[CheckpointKey]:
        """Return the keys of the relay's positions whose newest record is unreadable."""
        keys = [parse_key(record_key) for record_key in self.unreadable]
        return [key for key in keys if isinstance(key, CheckpointKey) and key.relay == self._relay]

    def snapshot(self) -> SourceSnapshot | None:
        """Return the last snapshot of the relay's source; None if there is none. Raises Fatal if the snapshot is unreadable."""
        if (error := self.unreadable.get(encode_key(self._relay, SOURCE_SNAPSHOT))) is not None:
            hint = "start the relay while the source answers: the relay then writes a new source snapshot"
            raise Fatal(f"the source snapshot of relay {self._relay!r} is unreadable: {error}", hint, REFUSED)
        return self.snapshots.get(self._relay)

    def checkpoints_of(self, relay: str) -> dict[CheckpointKey, Checkpoint]:
        """Return the checkpoints of a relay, by key."""
        return {key: position for key, position in self.positions.items() if key.relay == relay}

    def is_earlier(self, key: CheckpointKey, other: CheckpointKey) -> bool:
        """Return whether `key` had a checkpoint before `other` had one.

        The result is also true if the order is unknown, because the keys are in different partitions of the checkpoint topic.
        """
        partition, offset = self._first_written.get(key, (None, None))
        other_partition, other_offset = self._first_written.get(other, (None, None))
        return partition != other_partition or (offset or 0) < (other_offset or 0)

    def _apply(self, record_key: bytes, value: bytes | None, location: tuple[int | None, int | None]) -> None:
        """Apply a record of the checkpoint topic. `location` is its partition and offset."""
        try:
            key = parse_key(record_key)
        except ValueError:
            log.warning(
                "the record %s[%s]@%s is skipped: its key %.200r is not a valid checkpoint key",
                self.topic,
                *location,
                record_key,
            )
            return
        self.unreadable.pop(record_key, None)
        try:
            if isinstance(key, CheckpointKey):
                _apply_value(self.positions, key, value, _checkpoint_decoder)
                if value is None:
                    self._first_written.pop(key, None)
                else:
                    self._first_written.setdefault(key, location)
            elif isinstance(key, str):
                _apply_value(self.registrations, key, value, _registration_decoder)
            else:
                _apply_value(self.snapshots, key[0], value, _snapshot_decoder)
        except UnreadableDocument as error:
            self.unreadable[record_key] = located = f"{self.topic}[{location[0]}]@{location[1]}: {error}"
            log.warning(
                "the checkpoint record with the key %.200r is skipped: its value is unreadable: %s", record_key, located
            )


def _apply_value(into: dict[K, V], key: K, value: bytes | None, decoder: DocumentDecoder[V]) -> None:
    """Apply a record of a compacted topic to `into`: store the decoded value, or delete the key if the value is None."""
    if value is None:
        into.pop(key, None)
    else:
        into[key] = decoder.decode(value)
