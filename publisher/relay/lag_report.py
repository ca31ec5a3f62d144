"""How far a relay has copied each partition, from the checkpoints at the destination and the ends at the source; and what the
relay's process says of itself, if it answers.

No relay has to run. If the source or the process does not answer, the fields that only they know are None.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from publisher.errors import Retriable
from publisher.kafka.partitions import Partition
from publisher.kafka.topics import Bounds
from publisher.relay.checkpoints import Checkpoint, Place, Registration
from publisher.relay.clusters import log_of, topics_of
from publisher.relay.scrape_metrics import Process, ask
from publisher.relay.settings import RelaySettings


@dataclass(frozen=True)
class Standing:
    """One partition. `next` is the next source offset to copy, `end` where the source's log ends (None: it did not answer);
    lag in records and in seconds (age of the last copied record while more wait); `age_seconds` of the checkpoint;
    `records_per_second`, in source offsets, since the look before."""

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
class Status:
    """A relay as seen from outside at `at_ms` (Unix). `last` began last under its name; `process` is None where it does not
    answer; `error` says why nothing newer is known."""

    name: str
    at_ms: int
    last: Registration | None
    source_answers: bool
    process: Process | None
    partitions: Sequence[Standing]
    error: str | None = None


class Observer:
    """Looks at one relay, again and again over the same connections. `listen` is where its process serves metrics."""

    def __init__(self, settings: RelaySettings, listen: str) -> None:
        """Raises Fatal where the destination does not answer."""
        self._settings = settings
        self._listen = listen
        self._checkpoints = log_of(settings)
        self._source, _ = topics_of(settings)
        self._before: Status | None = None

    def look(self, now_ms: int) -> Status:
        """Read the checkpoints, ask the source and the process. Raises Fatal where the destination does not answer."""
        self._checkpoints.refresh()
        own = self._checkpoints.of_relay(self._settings.name)
        ends: dict[Partition, Bounds] | None = None
        with contextlib.suppress(Retriable):
            ends = self._source.bounds((place.topic, place.partition) for place in own)
        found = Status(
            name=self._settings.name,
            at_ms=now_ms,
            last=self._checkpoints.registrations.get(self._settings.name),
            source_answers=ends is not None,
            process=ask(self._listen, self._settings.name),
            partitions=[_standing(self._settings, place, own[place], ends or {}, now_ms) for place in sorted(own)],
        )
        self._before = found = with_rates(found, self._before)
        return found


def with_rates(found: Status, before: Status | None) -> Status:
    """The same with records a second since an earlier look; None where not known, or less is copied than before. Pure."""
    seconds = (found.at_ms - before.at_ms) / 1_000 if before else 0.0
    if before is None or seconds <= 0:
        return found
    offsets = {(row.topic, row.partition): row.next for row in before.partitions}
    counts = {lane.lane: lane.records for lane in before.process.lanes} if before.process else {}

    def rate(now: int, then: int | None) -> float | None:
        return None if then is None or now < then else (now - then) / seconds

    rows = [replace(r, records_per_second=rate(r.next, offsets.get((r.topic, r.partition)))) for r in found.partitions]
    if found.process is not None:
        lanes = [replace(row, records_per_second=rate(row.records, counts.get(row.lane))) for row in found.process.lanes]
        found = replace(found, process=replace(found.process, lanes=lanes))
    return replace(found, partitions=rows)


def _standing(
    settings: RelaySettings, place: Place, found: Checkpoint, ends: Mapping[Partition, Bounds], now_ms: int
) -> Standing:
    bounds = ends.get((place.topic, place.partition))
    lag = None if bounds is None else max(0, bounds.high - found.next)
    seconds = None if lag is None else 0.0
    if lag:
        seconds = max(0, now_ms - found.timestamp_ms) / 1_000 if found.timestamp_ms >= 0 else None
    return Standing(
        topic=place.topic,
        partition=place.partition,
        lane=settings.lane(place.topic, place.partition),
        next=found.next,
        end=None if bounds is None else bounds.high,
        lag_records=lag,
        lag_seconds=seconds,
        age_seconds=max(0, now_ms - found.at_ms) / 1_000,
    )
