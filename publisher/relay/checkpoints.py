"""The positions that a relay has reached, as records of a compacted topic at the destination.

A lane writes them in the transaction of the records that they cover, so they tell exactly what is visible there. Beside them
stands one registration a relay: how many lanes it has, and which process began last; and, where it follows consumer groups,
what it last saw of its source. Encoding is pure; `CheckpointLog` reads.

Relays share the topic, so anyone who runs one can write any record there. A record that cannot be read is named in the log and
skipped. Only the relay whose key it has is stopped by it, because its position, or how many lanes to fence, is unknown.
"""

import logging
from typing import Annotated, NamedTuple, TypeVar
from urllib.parse import quote, unquote

import msgspec

from model_registry.untrusted_input.documents import Count, DocumentDecoder, Int64, Unix, UnreadableDocument
from publisher.errors import REFUSED, Fatal
from publisher.kafka.groups import GroupPosition
from publisher.kafka.partitions import Offsets
from publisher.kafka.reader import TopicReader
from publisher.kafka.source_position import LARGEST_PARTITION
from publisher.transactions.protocol import Record

log = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")

TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": "8388608",  # compaction leaves the newest segment alone, and a start reads all of it
    "min.cleanable.dirty.ratio": "0.1",
    "retention.ms": "-1",
}
SEPARATOR = "/"
SIGHTING = "source"
MOST_LANES = 1_024  # a registration makes its reader fence so many transactional ids


class Place(NamedTuple):
    """Whose position a checkpoint is: the relay's name, the source region, its topic and partition."""

    relay: str
    region: str
    topic: str
    partition: int


class Checkpoint(msgspec.Struct, frozen=True):
    """The next offset to read of a source partition, and what was there when it was written. `cluster`, `topic_id`: the
    source's. `copied` is the last offset before `next` that was copied (-1: none, or not known). `epoch` is the leader epoch,
    `timestamp_ms` the Kafka timestamp, of the last record before `next` (-1: none); `at_ms` is the wall clock. Copies that lie
    before the destination's offset `copies_from` are of a topic that was there before this one, under the same name."""

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
    """The process that began last under a relay's name. Whoever finds another `instance` than its own has been replaced."""

    lanes: Annotated[int, msgspec.Meta(ge=0, le=MOST_LANES)]
    instance: str
    what: str
    host: str
    pid: Int64
    at_ms: Int64


class SourceEnd(msgspec.Struct, frozen=True):
    topic: str
    partition: Int64
    end: Int64


class Sighting(msgspec.Struct, frozen=True):
    """What a relay last saw of its source, asked for at `asked_ms` (Unix ms, as `complete_ms`). Everything that the source
    held at `complete_ms` has been copied (0: that was never so). `groups`: the positions of each consumer group."""

    cluster: str
    asked_ms: Unix
    complete_ms: Unix
    ends: tuple[SourceEnd, ...]
    groups: dict[str, tuple[GroupPosition, ...]]


encode = msgspec.json.Encoder().encode
_checkpoints, _sightings, _registrations = DocumentDecoder(Checkpoint), DocumentDecoder(Sighting), DocumentDecoder(Registration)


def key(*parts: str | int) -> bytes:
    """The record key of a position, whose parts are those of its Place; of a relay's registration, whose only part is its name;
    of what the relay last saw of its source: its name and SIGHTING."""
    return SEPARATOR.join(quote(str(part), safe="") for part in parts).encode("ascii")


def record(topic: str, key: bytes, value: bytes | None) -> Record:
    """A record of the checkpoint topic; without a value it takes its key away."""
    return topic, value, key, -1, 0, None


def parse_key(text: bytes) -> Place | tuple[str] | str:
    """A position's place, the relay's name of a registration, or (the relay's name,) of a sighting. Raises ValueError."""
    parts = [unquote(part, errors="strict") for part in text.decode("ascii").split(SEPARATOR)]
    match parts:
        case [relay]:
            return relay
        case [relay, kind] if kind == SIGHTING:
            return (relay,)
        case [relay, region, topic, partition] if partition.isdecimal() and int(partition) <= LARGEST_PARTITION:
            return Place(relay, region, topic, int(partition))
    raise ValueError(f"not the key of a checkpoint: {text!r}")


class CheckpointLog:
    """All relays' positions, registrations and sightings, as far as `refresh` has read. Methods raise Fatal.

    Unless the log is read for `repairing`, they end with 3 if the newest record of a position of `relay`, or of its
    registration, is unreadable.

    `unreadable` has the keys whose newest record is unreadable, and where that record is. Such a key keeps the value before it.
    """

    def __init__(self, reader: TopicReader, topic: str, relay: str, *, repairing: bool = False) -> None:
        self.topic = topic
        self.unreadable: dict[bytes, str] = {}
        self._relay = relay
        self._repairing = repairing
        self.reader = reader
        self.positions: dict[Place, Checkpoint] = {}
        self.registrations: dict[str, Registration] = {}
        self.sightings: dict[str, Sighting] = {}
        self._first: dict[Place, tuple[int | None, int | None]] = {}
        self._read: Offsets = {}

    def refresh(self) -> None:
        """Read on to where the topic ends now. Transactions that are open there are waited for: one that was begun before
        may hold the end of what is visible back, behind which a decided one of ours may stand."""
        self._read_to(self.reader.written(self.reader.partitions([self.topic])))

    def look(self, relay: str) -> None:
        """Read on to where readers are stopped now, which is enough to know whom to fence: what a killed process has left open
        is decided only by that, or after its time-out. Where a registration of `relay` stands behind that, it is waited for."""
        ends = self.reader.written(self.reader.partitions([self.topic]))
        visible = self.reader.visible(ends)
        self._read_to(visible)
        hidden = self.reader.read({partition: (visible[partition], end) for partition, end in ends.items()}, undecided=True)
        if any(message.key() == key(relay) for batch in hidden for message in batch.messages):
            self._read_to(ends)

    def _read_to(self, ends: Offsets) -> None:
        starts = self._read or self.reader.earliest(ends)
        for batch in self.reader.read({partition: (starts.get(partition, 0), end) for partition, end in ends.items()}):
            for message in batch.messages:
                self._take(message.key() or b"", message.value(), (message.partition(), message.offset()))
        self._read = ends
        self._refuse_unreadable()

    def _refuse_unreadable(self) -> None:
        """Raise Fatal if a position or the registration of the relay is unreadable."""
        for name, fault in [] if self._repairing else self.unreadable.items():
            match parse_key(name):
                case Place() as place if place.relay == self._relay:
                    hint = f"publisher checkpoint set CONFIG --topic {place.topic} --partition {place.partition} --to OFFSET"
                    raise Fatal(f"the position of {place.topic}[{place.partition}] is unreadable: {fault}", hint, REFUSED)
                case str() as relay if relay == self._relay:
                    hint = "end every process of this relay, then register again: publisher checkpoint set"
                    raise Fatal(f"the registration of relay {relay!r} is unreadable: {fault}", hint, REFUSED)

    def unreadable_places(self) -> list[Place]:
        """Return the positions of the relay whose newest record is unreadable."""
        found = [parse_key(name) for name in self.unreadable]
        return [place for place in found if isinstance(place, Place) and place.relay == self._relay]

    def sighting(self) -> Sighting | None:
        """Return what the relay last saw of its source. Raises Fatal if that record is unreadable."""
        if (fault := self.unreadable.get(key(self._relay, SIGHTING))) is not None:
            hint = "start the relay while its source answers: it writes that record again"
            raise Fatal(f"what relay {self._relay!r} last saw of its source is unreadable: {fault}", hint, REFUSED)
        return self.sightings.get(self._relay)

    def of_relay(self, relay: str) -> dict[Place, Checkpoint]:
        return {place: found for place, found in self.positions.items() if place.relay == relay}

    def earlier(self, one: Place, other: Place) -> bool:
        """Whether the first checkpoint of `one` was written before that of `other`; yes where they lie in two partitions."""
        (place, at), (other_place, other_at) = (self._first.get(name, (None, None)) for name in (one, other))
        return place != other_place or (at or 0) < (other_at or 0)

    def _take(self, name: bytes, value: bytes | None, at: tuple[int | None, int | None]) -> None:
        try:
            place = parse_key(name)
        except ValueError:
            log.warning("%s[%s]@%s is skipped: its key %.200r is none of a checkpoint", self.topic, *at, name)
            return
        self.unreadable.pop(name, None)
        try:
            if isinstance(place, Place):
                _put(self.positions, place, value, _checkpoints)
                if value is None:
                    self._first.pop(place, None)
                else:
                    self._first.setdefault(place, at)
            elif isinstance(place, str):
                _put(self.registrations, place, value, _registrations)
            else:
                _put(self.sightings, place[0], value, _sightings)
        except UnreadableDocument as error:
            self.unreadable[name] = fault = f"{self.topic}[{at[0]}]@{at[1]}: {error}"
            log.warning("a record with the key %.200r is skipped, it is no checkpoint: %s", name, fault)


def _put(into: dict[K, V], key: K, value: bytes | None, decoder: DocumentDecoder[V]) -> None:
    """A record of a compacted topic: without a value it takes its key away."""
    if value is None:
        into.pop(key, None)
    else:
        into[key] = decoder.decode(value)
