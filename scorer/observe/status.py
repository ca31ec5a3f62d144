"""Status records: what each scorer is doing, told on the bus itself, so that no other database is needed.

Topic `<name>.status`, compacted; the key is the scorer's owner id, or that of a notice that a channel has moved (notices.py). A
record whose heartbeat is old belongs to a scorer that is gone; one that stops in an orderly way says so in its last record.
"""

import logging
import time
import uuid
from collections.abc import Callable

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message, Producer

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 5.0
STALE_SECONDS = 3 * HEARTBEAT_SECONDS
SILENT_SECONDS = 2 * HEARTBEAT_SECONDS + 1.0  # one that has told nothing for so long is taken for dead by its successor
NOTICE = "_channel/"


class VersionStatus(msgspec.Struct, frozen=True):
    model: str
    version: str
    digest: str
    revision: int


class PartitionStatus(msgspec.Struct, frozen=True):
    """An assigned partition and the records behind its end; `paused` says why it is not read, where that is wrong."""

    topic: str
    partition: int
    lag: int
    paused: str = ""


class ScorerStatus(msgspec.Struct, frozen=True):
    """One scorer. Times are Unix ms; `cost` is T(B) = a + b B in seconds as (a, b). `tag` is the channel that it follows,
    `aspired_revision` the revision of it that it saw last, be it served, refused or on its way. `instance` is the process,
    `first` the offset of its first record here, or -1 in that one (see `Twins`). A `shadow`, in a group of its
    own, answers nobody and plays no part in a rollout."""

    scorer: str
    region: str
    state: str
    heartbeat_ms: int
    started_ms: int
    pid: int
    partitions: list[PartitionStatus]
    versions: dict[str, VersionStatus]
    refused: dict[str, str]
    cost: tuple[float, float]
    counters: dict[str, int]
    tag: str = ""
    aspired_revision: int = 0
    instance: str = ""
    first: int = -1
    shadow: bool = False


def notice_key(channel: str) -> str:
    return NOTICE + channel


def read(key: bytes | None, value: bytes | None) -> ScorerStatus | None:
    """A scorer's record of the status topic; None for notices, tombstones and bytes that are no such record."""
    return parse(value) if key and not key.startswith(NOTICE.encode()) else None


def parse(value: bytes | None) -> ScorerStatus | None:
    """The value of a scorer's record; None for a tombstone and for bytes that are no such record."""
    try:
        return msgspec.json.decode(value or b"", type=ScorerStatus)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


class Twins:
    """What the status topic tells of other processes that run under our name. No clocks are compared: the order of the first
    records in the topic says who is older. Two that live hear each other, and the younger one ends.

    `first` is the offset of our own first record, or -1 while that is not known; `heard_at` is when another process was heard
    last (monotonic seconds); `older` whether an older one lives.
    """

    def __init__(self) -> None:
        self.instance = uuid.uuid4().hex
        self.first = -1
        self.heard_at: float | None = None
        self.older = False

    def hear(self, message: Message) -> None:
        """Take in a status record under our name, our own or another's. From any thread."""
        status = parse(message.value())
        if status is None or status.instance == self.instance or status.state != "running":
            return
        self.heard_at = time.monotonic()
        offset = message.offset() or 0
        if 0 <= self.first < offset:  # told after we began: it lives
            self.older = self.older or (status.first if status.first >= 0 else offset) < self.first


class StatusReporter:
    """Writes a record at each change of version or partitions, each recovery, and every HEARTBEAT_SECONDS. Delivery is at
    least once. `twins` learns the offset of the first. `current(state)` makes the record of now."""

    def __init__(self, producer: Producer, topic: str, current: Callable[[str], ScorerStatus], twins: Twins) -> None:
        self._twins = twins
        self._producer = producer
        self._topic = topic
        self._current = current
        self._told: object = None
        self._next = float("inf")

    def tick(self, now: float) -> None:
        """Tell, if it is time or something changed; called about once a second. `now` is in monotonic seconds."""
        self._producer.poll(0)
        if now > self._next + SILENT_SECONDS - HEARTBEAT_SECONDS:  # frozen until now: another may have taken the name over
            self._twins.first = -1
        status = self._current("running")
        partitions = [(p.topic, p.partition) for p in status.partitions]
        about = status.versions, partitions, status.refused, status.aspired_revision, status.counters["recoveries"]
        if now < self._next and about == self._told:
            return
        self._told, self._next = about, now + HEARTBEAT_SECONDS
        self._send(status)

    def close(self) -> None:
        """Tell that this scorer has stopped, unless another goes on under its name."""
        if not self._twins.older:
            self._send(self._current("stopped"))
            self._producer.flush(2)

    def _send(self, status: ScorerStatus) -> None:
        try:
            self._producer.produce(self._topic, msgspec.json.encode(status), status.scorer.encode(), on_delivery=self._note)
            self._producer.poll(0)
        except (BufferError, KafkaException) as error:
            log.warning("the status record could not be written: %s", error)

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            log.warning("the status record was not written to %s: %s", message.topic(), error)
        elif self._twins.first < 0:
            self._twins.first = message.offset() or 0
