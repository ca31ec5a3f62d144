"""The position and lag of each partition, from the checkpoints at the destination and the end offsets of the source.

The relay need not run. If its process does not answer, the fields about the process are None. If the source does not answer,
the fields about the source are None.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from publisher.errors import Retriable
from publisher.kafka.partitions import Partition
from publisher.kafka.topics import Bounds
from publisher.relay.checkpoints import Checkpoint, CheckpointKey, Registration
from publisher.relay.clusters import open_checkpoint_log, open_topics
from publisher.relay.scrape_metrics import ProcessStatus, fetch_process
from publisher.relay.settings import RelaySettings


@dataclass(frozen=True)
class PartitionLag:
    """The position and lag of one partition.

    Attributes:
        topic: the source topic.
        partition: the partition of the source topic.
        lane: the number of the thread that copies the partition.
        next: the next source offset to copy.
        end: the end of the source's log; None if the source does not answer.
        lag_records: number of source offsets from `next` to `end`; None if `end` is unknown.
        lag_seconds: age of the last copied record if there is a backlog, otherwise 0; None if the age is unknown.
        age_seconds: age of the checkpoint.
        records_per_second: source offsets per second since the previous observation; None if unknown.
    """

    topic: str
    partition: int
    lane: int
    next: int
    end: int | None
    lag_records: int | None
    lag_seconds: float | None
    age_seconds: float
    records_per_second: float | None = None


@dataclass(frozen=True)
class RelayStatus:
    """The state of a relay, as observed at `at_ms` (Unix ms).

    Attributes:
        name: the relay's name.
        at_ms: when the state was observed.
        last: the registration of the process that started last; None if no process has registered.
        source_answers: whether the source answers.
        process: the metrics of the process; None if it does not answer.
        partitions: the position and lag of each partition.
        error: the error of the last refresh, if this state is older because that refresh failed; else None.
    """

    name: str
    at_ms: int
    last: Registration | None
    source_answers: bool
    process: ProcessStatus | None
    partitions: Sequence[PartitionLag]
    error: str | None = None


class Observer:
    """Observes the state of one relay repeatedly, over the same connections.

    `listen` is the address at which the relay's process serves its metrics.
    """

    def __init__(self, settings: RelaySettings, listen: str) -> None:
        self._settings = settings
        self._listen = listen
        self._checkpoints = open_checkpoint_log(settings)
        self._source, _ = open_topics(settings)
        self._previous: RelayStatus | None = None

    def observe(self, now_ms: int) -> RelayStatus:
        """Read the checkpoints, the source and the relay's metrics. Raises Fatal if the destination does not answer."""
        self._checkpoints.refresh()
        positions = self._checkpoints.checkpoints_of(self._settings.name)
        ends: dict[Partition, Bounds] | None = None
        with contextlib.suppress(Retriable):
            ends = self._source.bounds((key.topic, key.partition) for key in positions)
        status = RelayStatus(
            name=self._settings.name,
            at_ms=now_ms,
            last=self._checkpoints.registrations.get(self._settings.name),
            source_answers=ends is not None,
            process=fetch_process(self._listen, self._settings.name),
            partitions=[_partition_lag(self._settings, key, positions[key], ends or {}, now_ms) for key in sorted(positions)],
        )
        self._previous = status = with_rates(status, self._previous)
        return status


def with_rates(status: RelayStatus, previous: RelayStatus | None) -> RelayStatus:
    """Return `status` with the records per second since the state `previous`. Pure.

    A rate is None if the previous value is unknown or higher.
    """
    seconds = (status.at_ms - previous.at_ms) / 1_000 if previous else 0.0
    if previous is None or seconds <= 0:
        return status
    offsets = {(row.topic, row.partition): row.next for row in previous.partitions}
    counts = {lane.lane: lane.records for lane in previous.process.lanes} if previous.process else {}

    def rate(now: int, before: int | None) -> float | None:
        return None if before is None or now < before else (now - before) / seconds

    rows = [
        replace(row, records_per_second=rate(row.next, offsets.get((row.topic, row.partition)))) for row in status.partitions
    ]
    if status.process is not None:
        lanes = [replace(row, records_per_second=rate(row.records, counts.get(row.lane))) for row in status.process.lanes]
        status = replace(status, process=replace(status.process, lanes=lanes))
    return replace(status, partitions=rows)


def _partition_lag(
    settings: RelaySettings, key: CheckpointKey, position: Checkpoint, ends: Mapping[Partition, Bounds], now_ms: int
) -> PartitionLag:
    bounds = ends.get((key.topic, key.partition))
    lag = None if bounds is None else max(0, bounds.high - position.next)
    lag_seconds = None if lag is None else 0.0
    if lag:
        lag_seconds = max(0, now_ms - position.timestamp_ms) / 1_000 if position.timestamp_ms >= 0 else None
    return PartitionLag(
        topic=key.topic,
        partition=key.partition,
        lane=settings.lane(key.topic, key.partition),
        next=position.next,
        end=None if bounds is None else bounds.high,
        lag_records=lag,
        lag_seconds=lag_seconds,
        age_seconds=max(0, now_ms - position.at_ms) / 1_000,
    )
