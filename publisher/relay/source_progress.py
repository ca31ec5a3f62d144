"""Poll the source once a second: the end offsets of its partitions, and the positions of the followed consumer groups.

The last snapshot of these values is stored in the checkpoint topic at the destination. If the source is lost, only this
snapshot shows its last state.
"""

# A separate thread queries the source, which may not answer. The thread that supervises the copying threads writes the
# snapshots.

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
from publisher.relay.checkpoints import SourceEnd, SourceSnapshot
from publisher.relay.clients import with_short_timeouts
from publisher.relay.clusters import ANSWER_SECONDS
from publisher.relay.settings import RelaySettings
from publisher.runtime.context import now_ms

log = logging.getLogger(__name__)

PERIOD_SECONDS = 1.0
MAX_SNAPSHOTS = 120  # the most snapshots that are kept while their end offsets are ahead of the copies


class EndSnapshot(NamedTuple):
    """The end offsets of the source's partitions, requested at `at_ms` (Unix ms)."""

    at_ms: int
    ends: Mapping[Partition, int]


class Completeness:
    """Computes the latest time for which the copy is complete: all records that the source had then are copied. Pure.

    `complete_ms` is this time (Unix ms). Its initial value is the time that an earlier run has stored, or 0.
    """

    def __init__(self, complete_ms: int = 0) -> None:
        self.complete_ms = complete_ms
        self._snapshots: deque[EndSnapshot] = deque(maxlen=MAX_SNAPSHOTS)

    def add(self, snapshot: EndSnapshot) -> None:
        """Add the end offsets that a poll of the source has returned."""
        self._snapshots.append(snapshot)

    def update(self, copied: Mapping[Partition, int]) -> int:
        """Set `complete_ms` to the time of the latest poll whose end offsets the copies have reached, and return it.

        Args:
            copied: for each partition, the source offset up to which its copies are committed.
        """
        for snapshot in reversed(self._snapshots):
            if all(copied.get(partition, 0) >= end for partition, end in snapshot.ends.items()):
                self.complete_ms = max(self.complete_ms, snapshot.at_ms)
                while self._snapshots and self._snapshots[0].at_ms <= snapshot.at_ms:
                    self._snapshots.popleft()
                break
        return self.complete_ms


class SourcePoller:
    """Polls the source in a thread of its own.

    Args:
        settings: the settings of the relay.
        cluster: the id of the source cluster.
        source: queries the topics of the source cluster.
        copied: a function that returns, for each partition, the source offset up to which its copies are committed.
        stored: the snapshot that an earlier run has stored; None if there is none.

    Attributes:
        failure: the error that has ended the thread; None while it runs.
    """

    def __init__(
        self,
        settings: RelaySettings,
        cluster: str,
        source: Topics,
        copied: Callable[[], Mapping[Partition, int]],
        stored: SourceSnapshot | None,
    ) -> None:
        self.failure: Exception | None = None
        self._completeness = Completeness(stored.complete_ms if stored is not None and stored.cluster == cluster else 0)
        groups = settings.source.groups
        source_kafka = with_short_timeouts(settings.source.kafka)
        self._readers = {group: GroupReader(source_kafka, settings.name, group, decided=False) for group in groups}
        self._cluster = cluster
        self._source = source
        self._copied = copied
        self._latest: SourceSnapshot | None = None
        self._returned: SourceSnapshot | None = None
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="source-poller", daemon=True)
        self._thread.start()

    def take(self) -> SourceSnapshot | None:
        """Return the latest snapshot, for the caller to store; None if it has not changed since the last call."""
        copied = self._copied()
        with self._lock:
            latest = self._latest
            complete_ms = self._completeness.update(copied)
        snapshot = latest and structs.replace(latest, complete_ms=complete_ms)
        if snapshot == self._returned:
            return None
        self._returned = snapshot
        return snapshot

    def close(self) -> None:
        """Ask the thread to end, without waiting for it."""
        self._closing.set()

    def _run(self) -> None:
        while self.failure is None and not self._closing.is_set():
            began = time.monotonic()
            try:
                self._poll()
            except Retriable as error:
                log.info("%s", error)
            except Exception as error:  # noqa: BLE001 - the supervising thread raises it
                self.failure = error
            self._closing.wait(max(0.0, PERIOD_SECONDS - (time.monotonic() - began)))
        for reader in self._readers.values():
            reader.close()

    def _poll(self) -> None:
        asked_ms = now_ms()
        partitions = list(self._copied())
        groups = {name: group.positions(partitions, ANSWER_SECONDS, "the source") for name, group in self._readers.items()}
        ends = {partition: bounds.high for partition, bounds in self._source.bounds(partitions).items()}
        source_ends = tuple(SourceEnd(*partition, end) for partition, end in sorted(ends.items()))
        with self._lock:
            self._completeness.add(EndSnapshot(asked_ms, ends))
            self._latest = SourceSnapshot(self._cluster, asked_ms, 0, source_ends, groups)
