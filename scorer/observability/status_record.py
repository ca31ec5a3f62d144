"""Status records: the state of each scorer, published to Kafka, so that no other database is needed.

Topic `<name>.status`, compacted. The key is the scorer's owner id, or the key of a channel move (see
`channel_move_listener.py`). Every principal with Write on the topic can write any record: readers bound what they keep, and
decide nothing about a process by its record alone. A record whose heartbeat is old belongs to a scorer that is gone; a scorer
that stops in an orderly way says so in its last record.
"""

import logging
from collections.abc import Callable
from typing import Annotated

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from model_registry.untrusted_input.documents import DocumentDecoder, Int64

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 5.0
STALE_SECONDS = 3 * HEARTBEAT_SECONDS
SILENT_SECONDS = 2 * HEARTBEAT_SECONDS + 1.0  # after which a successor takes a scorer without a record for dead
NOTICE = "_channel/"

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Lag = Annotated[int, msgspec.Meta(ge=-(2**42), le=2**42)]  # the sum of any number of these that a topic can hold has 64 bits
Number = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Seconds = Annotated[float, msgspec.Meta(ge=-1e9, le=1e9)]


class VersionStatus(msgspec.Struct, frozen=True):
    model: str
    version: str
    digest: str
    revision: Int64


class PartitionStatus(msgspec.Struct, frozen=True):
    """An assigned partition and its unread records; `paused` has the reason if it is not read because of a fault."""

    topic: str
    partition: Number
    lag: Lag
    paused: str = ""


class ScorerStatus(msgspec.Struct, frozen=True):
    """The status of one scorer.

    Times are Unix ms; `cost` is T(B) = a + b B in seconds as (a, b). `tag` is the followed channel, `aspired_revision` its
    newest seen revision,
    whether served, refused or being loaded. `instance` identifies the process. A `shadow` is in its own group, answers no
    event and takes no
    part in a rollout.
    """

    scorer: str
    region: str
    state: str
    heartbeat_ms: Count
    started_ms: Count
    pid: Count
    partitions: list[PartitionStatus]
    versions: dict[str, VersionStatus]
    refused: dict[str, str]
    cost: tuple[Seconds, Seconds]
    counters: dict[str, Count]
    tag: str = ""
    aspired_revision: Int64 = 0
    instance: str = ""
    shadow: bool = False


_decoder = DocumentDecoder(ScorerStatus)


def notice_key(channel: str) -> str:
    return NOTICE + channel


def read(key: bytes | None, value: bytes | None) -> ScorerStatus | None:
    """Parse a scorer's record; None for notices, tombstones, other bytes, and records that contradict their key."""
    if not key or key.startswith(NOTICE.encode()):
        return None
    status = parse(value)
    return status if status is not None and status.scorer.encode("utf-8", "replace") == key else None


def parse(value: bytes | None) -> ScorerStatus | None:
    """Parse the value of a scorer's record; None for a tombstone and for other bytes."""
    return _decoder.decode_or_none(value)


class StatusReporter:
    """Writes a record at each change of version or partitions, each recovery, and every HEARTBEAT_SECONDS, at least once.

    `current(state)` builds the record; `replaced()` returns whether another process runs under this name.
    """

    def __init__(
        self, producer: Producer, topic: str, current: Callable[[str], ScorerStatus], replaced: Callable[[], bool]
    ) -> None:
        self._replaced = replaced
        self._producer = producer
        self._topic = topic
        self._current = current
        self._told: object = None
        self._next = float("inf")

    def tick(self, now: float) -> None:
        """Write a record if it is due or the state changed; called about once a second. `now` is in monotonic seconds."""
        self._producer.poll(0)
        status = self._current("running")
        partitions = [(p.topic, p.partition) for p in status.partitions]
        about = status.versions, partitions, status.refused, status.aspired_revision, status.counters["recoveries"]
        if now < self._next and about == self._told:
            return
        self._told, self._next = about, now + HEARTBEAT_SECONDS
        self._send(status)

    def close(self) -> None:
        """Report that this scorer has stopped, unless another process runs under its name."""
        if not self._replaced():
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
