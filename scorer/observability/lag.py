"""Compute the lag of a partition's scores in seconds. Pure: the caller passes `now_ms`.

While records wait, the lag is the time since the partition last had none: since its last answered event was written, since its
end was reached with all events answered, or since no record waited, whichever came last. Readers of committed records also
reach an end while a transaction is open behind it. Therefore a producer that aborts its transactions causes no lag in seconds,
a partition that never answers an event does, and the first event after a quiet hour does not.
"""

from collections.abc import Mapping

from publisher.kafka.partitions import Partition


class LagClock:
    """The time at which each assigned partition last had no lag (Unix ms)."""

    def __init__(self) -> None:
        self._caught_up_ms: dict[Partition, int] = {}

    def seconds(
        self, waiting: Mapping[Partition, int], answered_ms: Mapping[Partition, int], now_ms: int
    ) -> dict[Partition, float]:
        """Return the lag of each partition of `waiting` in seconds.

        Args:
            waiting: the number of unanswered records by partition. Other partitions are forgotten.
            answered_ms: the time at which the last answered event of a partition was written, or at which its end was reached
                after that event.
            now_ms: the current time.
        """
        self._caught_up_ms = {p: now_ms if not records else self._caught_up_ms.get(p, 0) for p, records in waiting.items()}
        rows = {}
        for partition, records in waiting.items():
            caught_up_ms = max(self._caught_up_ms[partition], answered_ms.get(partition, 0))
            if not caught_up_ms:  # a new partition: its clock starts
                caught_up_ms = self._caught_up_ms[partition] = now_ms
            rows[partition] = max(0, now_ms - caught_up_ms) / 1_000 if records else 0.0
        return rows
