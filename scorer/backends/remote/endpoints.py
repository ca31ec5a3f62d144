"""Which server takes the next request, and how many requests may be in flight. Pure; times are monotonic seconds.

A server that refuses is ejected at once, one that misses deadlines after several in a row. An ejected server gets no requests;
it is probed when its back-off is over, longer each time, and taken in again by a probe that succeeds.

A server answers fastest when it is busy and nothing queues before it: additive increase, multiplicative decrease. The limit
grows by one for each full window that was answered in time, and halves, once for all requests out, at a missed deadline.
"""

from collections.abc import Iterable
from dataclasses import dataclass

MISSES = 3  # in a row: one may be the event's fault
FIRST_BACKOFF = 0.1
LONGEST_BACKOFF = 2.0
FIRST_LIMIT = 2.0
LARGEST_LIMIT = 32.0
DECREASE = 0.5


@dataclass(slots=True)
class Endpoint:
    """`open` is the breaker's word: no requests. `failures` counts refusals and failed probes since the last success."""

    address: str
    open: bool = False
    probing: bool = False
    failures: int = 0
    misses: int = 0
    in_flight: int = 0
    probe_at: float = 0.0
    why: str = ""


class Endpoints:
    """All servers that hold the same models. Each may be asked at first."""

    def __init__(self, addresses: Iterable[str]) -> None:
        self.all = [Endpoint(address) for address in addresses]

    def pick(self) -> int | None:
        """The healthy server with the fewest requests in flight; None where all are ejected."""
        healthy = [k for k, one in enumerate(self.all) if not one.open]
        return min(healthy, key=lambda k: self.all[k].in_flight, default=None)

    def due(self, now: float) -> list[int]:
        """Ejected servers that are to be probed now."""
        return [k for k, one in enumerate(self.all) if one.open and not one.probing and one.probe_at <= now]

    def wait(self, now: float) -> float:
        """Seconds until a server may be probed or asked, at least a little."""
        return max(FIRST_BACKOFF, min((one.probe_at - now for one in self.all if one.open), default=0.0))

    def succeeded(self, at: int) -> None:
        """It answered a request or a probe: an answer, be it a refusal of the request's content, shows that it is there."""
        one = self.all[at]
        one.open, one.failures, one.misses, one.why = False, 0, 0, ""

    def missed(self, at: int, now: float) -> None:
        """It did not answer a request by the deadline. Ejected for that, it is probed at once: it may only be slow."""
        one = self.all[at]
        one.misses += 1
        if one.misses >= MISSES and not one.open:
            one.open, one.probe_at, one.why = True, now, "does not answer in time"

    def failed(self, at: int, now: float, why: str) -> None:
        """It refused, it is not there, or a probe failed."""
        one = self.all[at]
        one.failures += 1
        one.open, one.why = True, why
        one.probe_at = now + min(LONGEST_BACKOFF, FIRST_BACKOFF * 2 ** (min(one.failures, 16) - 1))

    def complaint(self) -> str:
        """What is wrong with those that are ejected."""
        return "; ".join(f"{one.address}: {one.why}" for one in self.all if one.open)


@dataclass(slots=True)
class ConcurrencyLimit:
    """`limit` requests at most, whole ones."""

    limit: float = FIRST_LIMIT
    decreased_at: float = float("-inf")

    def room(self, in_flight: int) -> bool:
        """Whether one more may be sent."""
        return in_flight < int(self.limit)

    def answered(self, in_flight: int) -> None:
        """A request was answered in time; `in_flight` counts it. A window that is not used up says nothing, and stays."""
        if in_flight >= int(self.limit):
            self.limit = min(LARGEST_LIMIT, self.limit + 1 / self.limit)

    def missed(self, sent_at: float, now: float) -> None:
        """A request sent at `sent_at` was not answered by its deadline, or the server had no room for it."""
        if sent_at >= self.decreased_at:
            self.limit = max(1.0, self.limit * DECREASE)
            self.decreased_at = now
