"""Compute the lag of a partition's scores in seconds. Pure: the caller passes `now_ms`.

An event is answered when its score or dead letter is committed. The lag is 0 while all records of the partition are answered.
Otherwise the lag is the time since the partition was last up to date.
"""

# The lag is 0 while no record of the partition waits. Otherwise it is the time since the latest of three times: when the last
# answered event was written, when the end of the partition was last reached with all events answered, and when the partition
# last had no waiting records.
#
# The end is the last stable offset, which a reader can reach while a transaction is open. Therefore a producer that aborts its
# transactions causes no lag in seconds, and neither does the first event after a quiet hour.

from collections.abc import Mapping

from publisher.kafka.partitions import Partition


class LagClock:
    """Computes lags in seconds. For each assigned partition, it stores when all records were last answered."""

    def __init__(self) -> None:
        self._caught_up_ms: dict[Partition, int] = {}

    def seconds(
        self, waiting: Mapping[Partition, int], answered_ms: Mapping[Partition, int], now_ms: int
    ) -> dict[Partition, float]:
        """Return the lag in seconds of each partition in `waiting`.

        Args:
            waiting: the number of unanswered records of each assigned partition. The state of other partitions is dropped.
            answered_ms: by partition, the later of two times in Unix ms. One is the timestamp of the last answered event. The
                other is when the end of the partition was last reached with all events answered.
            now_ms: the current time in Unix ms.
        """
        self._caught_up_ms = {p: now_ms if not records else self._caught_up_ms.get(p, 0) for p, records in waiting.items()}
        rows = {}
        for partition, records in waiting.items():
            caught_up_ms = max(self._caught_up_ms[partition], answered_ms.get(partition, 0))
            if not caught_up_ms:  # a new partition: its clock starts
                caught_up_ms = self._caught_up_ms[partition] = now_ms
            rows[partition] = max(0, now_ms - caught_up_ms) / 1_000 if records else 0.0
        return rows
