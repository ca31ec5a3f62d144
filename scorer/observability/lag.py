"""The lag of a partition's scores in seconds. Pure: the caller passes `now_ms`.

While records wait, lag is the time since the partition was last level: since its last answered event was written, since its
end was reached
with everything answered, or since no record waited, whichever came last. Readers of committed records also reach an end while
a
transaction is open behind it. A producer that aborts its transactions therefore causes no lag in seconds, a partition that
never answers
an event does, and a partition whose first event arrives after a quiet hour does not.
"""

from collections.abc import Mapping

from publisher.kafka.partitions import Partition


class LagClock:
    """The time when each assigned partition was last level (Unix ms)."""

    def __init__(self) -> None:
        self._level_ms: dict[Partition, int] = {}

    def seconds(
        self, waiting: Mapping[Partition, int], answered_ms: Mapping[Partition, int], now_ms: int
    ) -> dict[Partition, float]:
        """Return the lag of each partition of `waiting` (number of unanswered records).

        `answered_ms` is the time when the last answered event of a partition was written, or when its end was reached after
        that. Partitions that
        are missing here are forgotten: they belong to other scorers.
        """
        self._level_ms = {p: now_ms if not records else self._level_ms.get(p, 0) for p, records in waiting.items()}
        rows = {}
        for partition, records in waiting.items():
            level = max(self._level_ms[partition], answered_ms.get(partition, 0))
            if not level:  # nothing is known of it: its clock begins
                level = self._level_ms[partition] = now_ms
            rows[partition] = max(0, now_ms - level) / 1_000 if records else 0.0
        return rows
