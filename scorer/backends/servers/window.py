"""How many requests may be in flight at once: additive increase, multiplicative decrease. Pure; times are monotonic seconds.

A server answers fastest when it is busy and nothing queues before it. The limit grows by one for each full window that was
answered in time, and halves where a deadline was missed: once for all the requests that were already out.
"""

from dataclasses import dataclass

FIRST = 2.0
LARGEST = 32.0
DECREASE = 0.5


@dataclass(slots=True)
class Window:
    """`limit` requests at most, whole ones."""

    limit: float = FIRST
    decreased_at: float = float("-inf")

    def room(self, in_flight: int) -> bool:
        """Whether one more may be sent."""
        return in_flight < int(self.limit)

    def answered(self, in_flight: int) -> None:
        """A request was answered in time; `in_flight` counts it. A window that is not used up says nothing, and stays."""
        if in_flight >= int(self.limit):
            self.limit = min(LARGEST, self.limit + 1 / self.limit)

    def missed(self, sent_at: float, now: float) -> None:
        """A request sent at `sent_at` was not answered by its deadline, or the server had no room for it."""
        if sent_at >= self.decreased_at:
            self.limit = max(1.0, self.limit * DECREASE)
            self.decreased_at = now
