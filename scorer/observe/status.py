"""Status records: what each scorer is doing, told on the bus itself, so that no other database is needed.

Topic `<name>.status`, compacted; the key is the scorer's owner id (or that of a notice, see notices.py). A record whose
heartbeat is old belongs to a scorer that is gone; a scorer that stops in an orderly way says so in its last record.
"""

import logging
from collections.abc import Callable

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message, Producer

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 5.0
STALE_SECONDS = 3 * HEARTBEAT_SECONDS


class VersionStatus(msgspec.Struct, frozen=True):
    """The version served in a role."""

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
    `aspired_revision` the revision of it that it saw last, be it served, refused or on its way."""

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


class StatusReporter:
    """Writes a record at each change of version or partitions, and every HEARTBEAT_SECONDS. Delivery is at least once."""

    def __init__(self, producer: Producer, topic: str, current: Callable[[str], ScorerStatus]) -> None:
        self._producer = producer
        self._topic = topic
        self._current = current
        self._told: object = None
        self._next = 0.0

    def tick(self, now: float) -> None:
        """Tell, if it is time or something changed. `now` is in monotonic seconds."""
        status = self._current("running")
        partitions = [(p.topic, p.partition) for p in status.partitions]
        about = status.versions, partitions, status.refused, status.aspired_revision
        if now < self._next and about == self._told:
            return
        self._told, self._next = about, now + HEARTBEAT_SECONDS
        self._send(status)

    def close(self) -> None:
        """Tell that this scorer has stopped."""
        self._send(self._current("stopped"))
        self._producer.flush(2)

    def _send(self, status: ScorerStatus) -> None:
        try:
            self._producer.produce(self._topic, msgspec.json.encode(status), status.scorer.encode(), on_delivery=_note)
            self._producer.poll(0)
        except (BufferError, KafkaException) as error:
            log.warning("the status record could not be written: %s", error)


def _note(error: KafkaError | None, message: Message) -> None:
    if error is not None:
        log.warning("the status record was not written to %s: %s", message.topic(), error)
