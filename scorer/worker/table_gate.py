"""Pause partitions whose tables of joined fields are not restored or lag too much, and pass the assignment to the tables.

The worker calls the gate between two batches. Without tables, the gate does nothing.
"""

import logging
from collections.abc import Collection, Mapping

from publisher.kafka.partitions import Partition, in_ranges
from publisher.runtime.context import Clock
from scorer.consumer.consumer import EventConsumer
from scorer.decoding.batch import Batch
from scorer.tables.tables import Tables

log = logging.getLogger(__name__)


class TableGate:
    """Pauses the assigned partitions that wait for a table of joined fields.

    Args:
        intake: the consumer that fetches the events.
        tables: the tables; None if no tables are configured.
        clock: the clock of the tables.
    """

    def __init__(self, intake: EventConsumer, tables: Tables | None, clock: Clock | None = None) -> None:
        self._intake = intake
        self._tables = tables
        self._clock = clock or Clock()
        self._waiting: Mapping[Partition, str] = {}
        self._recent_until = float("inf")
        self._repeats = False  # whether the previous batch was repeated

    @property
    def waiting(self) -> Mapping[Partition, str]:
        """The partitions that wait for a table, each with the reason as a sentence."""
        return self._waiting

    def admit(self, arrivals: Collection[Partition]) -> None:
        """Pause the partitions that were assigned just now, until their tables are restored.

        Call this method before the client may fetch these partitions. Raises Fatal as `check` does.
        """
        if self._tables is not None:
            self._tables.follow(self._intake.partitions, arrivals)
            self._apply(self._tables.waiting())

    def check(self) -> None:
        """Pause the partitions that must wait for a table now, and resume the other partitions.

        Raises:
            Fatal: the tables cannot be read, or exceed their limits.
        """
        if self._tables is not None:
            self._tables.follow(self._intake.partitions)
            self._apply(self._tables.waiting())

    def begin_batch(self, batch: Batch) -> None:
        """Record how recent the rows of the tables are, before they are looked up for a batch."""
        if self._tables is not None:
            self._recent_until = self._tables.recent_until(batch.epochs)

    def must_repeat_batch(self) -> bool:
        """Return whether the batch must be read again, because its rows became too old before it was scored.

        This happens if the process was paused between the fetch and the scores. A batch is not repeated twice: a model that
        needs more than `max_lag_seconds` for a batch would otherwise never score it.
        """
        is_late = self._clock.monotonic() > self._recent_until
        self._repeats = is_late and not self._repeats
        return self._repeats

    def _apply(self, waiting: Mapping[Partition, str]) -> None:
        before = self._waiting
        if not waiting and not before:
            return
        self._waiting = waiting
        self._intake.pause(waiting, "table")  # also partitions that waited before: they may have been assigned again
        if released := before.keys() - waiting.keys():
            self._intake.resume(released, "table")
        if started := waiting.keys() - before.keys():
            log.info("waiting with %s: %s", in_ranges(started), waiting[min(started)])
        if released and not waiting:
            log.info("the tables are ready; no partition waits for them")
