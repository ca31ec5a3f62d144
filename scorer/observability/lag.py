"""How late a partition's scores are, in seconds. Pure: `now_ms` is handed in.

While records wait, lag is the time since the partition was last known to be level: since its last answered event was written,
since its end was reached with everything answered, or since nothing waited, whichever came last. Readers of committed records
reach an end also while a transaction is open behind it. So a producer that aborts its transactions one after another causes no
lag in seconds, a partition that never answers anything is late too, and one in which an event comes after a quiet hour is not.
"""

from collections.abc import Mapping

from publisher.kafka.partitions import Partition


class LagClock:
    """Remembers when each assigned partition was last level (Unix ms)."""

    def __init__(self) -> None:
        self._level_ms: dict[Partition, int] = {}

    def seconds(
        self, waiting: Mapping[Partition, int], answered_ms: Mapping[Partition, int], now_ms: int
    ) -> dict[Partition, float]:
        """Lag of each partition of `waiting` (records not yet answered). `answered_ms`: when the last answered event of a
        partition was written, or its end reached after that. A partition that is missing here is forgotten: it belongs to
        others."""
        self._level_ms = {p: now_ms if not records else self._level_ms.get(p, 0) for p, records in waiting.items()}
        rows = {}
        for partition, records in waiting.items():
            level = max(self._level_ms[partition], answered_ms.get(partition, 0))
            if not level:  # nothing is known of it: its clock begins
                level = self._level_ms[partition] = now_ms
            rows[partition] = max(0, now_ms - level) / 1_000 if records else 0.0
        return rows
