"""Looks at the source once a second: where its partitions end, and where the consumer groups stand that are followed.

What was seen last is kept at the destination, beside the checkpoints: when the source is lost, it is all that is known of it.
Asking and keeping are apart: a thread asks the source, which may be silent; whoever supervises the lanes writes.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from msgspec import structs

from publisher.errors import Retriable
from publisher.kafka.groups import GroupReader
from publisher.kafka.partitions import Partition
from publisher.kafka.topics import Topics
from publisher.relay.checkpoints import Sighting, SourceEnd
from publisher.relay.clients import quick
from publisher.relay.clusters import ANSWER_SECONDS
from publisher.relay.settings import RelaySettings
from publisher.runtime.context import now_ms

log = logging.getLogger(__name__)

PERIOD_SECONDS = 1.0
REMEMBERED = 120  # looks whose ends may still be ahead of the copy


class Look(NamedTuple):
    """One look at the source, begun at `at_ms` (Unix ms)."""

    at_ms: int
    ends: Mapping[Partition, int]


class Completeness:
    """Up to which moment everything that the source held has been copied. Pure."""

    def __init__(self, complete_ms: int = 0) -> None:
        self.complete_ms = complete_ms
        self._looks: deque[Look] = deque(maxlen=REMEMBERED)

    def add(self, look: Look) -> None:
        self._looks.append(look)

    def reached(self, copied: Mapping[Partition, int]) -> int:
        """The latest moment of a look all of whose ends are reached by `copied` (next offsets), Unix ms; 0 is none."""
        for look in reversed(self._looks):
            if all(copied.get(partition, 0) >= end for partition, end in look.ends.items()):
                self.complete_ms = max(self.complete_ms, look.at_ms)
                while self._looks and self._looks[0].at_ms <= look.at_ms:
                    self._looks.popleft()
                break
        return self.complete_ms


class Sightings:
    """A thread that looks at the source, the cluster of this id. `copied()` gives the next offset of each partition whose copy
    is confirmed, `before` is what an earlier life of the relay kept."""

    def __init__(
        self,
        settings: RelaySettings,
        cluster: str,
        source: Topics,
        copied: Callable[[], Mapping[Partition, int]],
        before: Sighting | None,
    ) -> None:
        self.failure: Exception | None = None
        self._completeness = Completeness(before.complete_ms if before is not None and before.cluster == cluster else 0)
        groups = settings.source.groups
        source_kafka = quick(settings.source.kafka)
        self._readers = {group: GroupReader(source_kafka, settings.name, group, decided=False) for group in groups}
        self._cluster = cluster
        self._source = source
        self._copied = copied
        self._seen: Sighting | None = None
        self._given: Sighting | None = None
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sightings", daemon=True)
        self._thread.start()

    def take(self) -> Sighting | None:
        """What is known of the source now, to be kept; None where that is what the last call gave."""
        copied = self._copied()
        with self._lock:
            seen, complete = self._seen, self._completeness.reached(copied)
        known = seen and structs.replace(seen, complete_ms=complete)
        if known == self._given:
            return None
        self._given = known
        return known

    def close(self) -> None:
        self._closing.set()

    def _run(self) -> None:
        while self.failure is None and not self._closing.is_set():
            began = time.monotonic()
            try:
                self._look()
            except Retriable as error:
                log.info("%s", error)
            except Exception as error:  # noqa: BLE001 - whoever supervises raises it
                self.failure = error
            self._closing.wait(max(0.0, PERIOD_SECONDS - (time.monotonic() - began)))
        for reader in self._readers.values():
            reader.close()

    def _look(self) -> None:
        asked = now_ms()
        partitions = list(self._copied())
        groups = {name: group.positions(partitions, ANSWER_SECONDS, "the source") for name, group in self._readers.items()}
        ends = {partition: bounds.high for partition, bounds in self._source.bounds(partitions).items()}
        told = tuple(SourceEnd(*partition, end) for partition, end in sorted(ends.items()))
        with self._lock:
            self._completeness.add(Look(asked, ends))
            self._seen = Sighting(self._cluster, asked, 0, told, groups)
