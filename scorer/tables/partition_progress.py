"""The progress of the reader in one partition of a table: its position, the topic's end, and its lag. No I/O.

The lag is the time since the position last equalled the end of the topic. To measure the lag, the reader requests the end at
intervals. When the position reaches such an end, the rows are as new as the topic was at the time of the request.
"""

from collections import deque

MAX_ENDS = 64
"""The largest number of requested ends that are kept until the position reaches them. Beyond it, every second is dropped."""
TRUNCATED_SECONDS = 3.0


class TablePartitionProgress:
    """The progress in one partition. One thread, the reader, changes it. Any thread may read the attributes and the lag.

    Attributes:
        position: the offset of the next record to apply.
        end: the newest known end of the partition (the last stable offset); None if no broker has answered yet.
        level_at: the latest time, in monotonic seconds, for which the rows are known to contain all records that the partition
            had then; minus infinity if the position has reached no end yet. It is the time of the request for the newest end
            that the position has reached.
        started_at: when the reader started to read the partition from its beginning, in monotonic seconds.
    """

    def __init__(self, now: float) -> None:
        """Start at the beginning of the partition, at the time `now` in monotonic seconds."""
        self.position = 0
        self.end: int | None = None
        self.level_at = float("-inf")
        self.started_at = now
        self._after_end_since = float("inf")
        self._ends: deque[tuple[float, int]] = deque()

    def reach(self, position: int) -> None:
        """Record that all records before this offset are applied."""
        self.position = max(self.position, position)
        while self._ends and self._ends[0][1] <= self.position:
            self.level_at = self._ends.popleft()[0]

    def record_end(self, asked_at: float, end: int, position: int) -> bool:
        """Record an end of the partition.

        Args:
            asked_at: when the broker was asked for the end, in monotonic seconds.
            end: the end offset of the partition.
            position: the position when the broker was asked.

        Returns:
            Whether the position is plausible. False if it has been after the end for TRUNCATED_SECONDS: the topic was recreated
            or truncated. A shorter time is allowed, because the end may briefly be too low after a change of the leader.
        """
        self.end = end
        if position > end:
            self._after_end_since = min(self._after_end_since, asked_at)
            return asked_at - self._after_end_since < TRUNCATED_SECONDS
        self._after_end_since = float("inf")
        self._ends.append((asked_at, end))
        if len(self._ends) > MAX_ENDS:
            self._ends = deque([*self._ends][::2])  # the newest one, at index MAX_ENDS, is kept
        self.reach(self.position)
        return True

    def lag_seconds(self, now: float) -> float:
        """Return the lag: the time since the position last equalled the end, or since the start if it never has."""
        return max(0.0, now - max(self.level_at, self.started_at))

    def is_restored(self, since: float) -> bool:
        """Return whether the position has reached an end that was requested at or after `since`, in monotonic seconds."""
        return self.level_at >= since
