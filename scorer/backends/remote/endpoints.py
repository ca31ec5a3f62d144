"""Select the server of the next request, and limit the requests in flight. Pure; times are monotonic seconds.

A server that rejects a request is ejected at once; a server that misses deadlines is ejected after several in a row. An ejected
server gets no requests. It is probed after a growing backoff, and readmitted after a successful probe.

A server is most efficient if it is busy without a queue: additive increase, multiplicative decrease. The limit grows by one for
each full window that was answered in time, and halves, once for all requests in flight, at a missed deadline.
"""

from collections.abc import Iterable
from dataclasses import dataclass

MISSES = 3  # in a row: a single miss may be caused by the event
FIRST_BACKOFF = 0.1
LONGEST_BACKOFF = 2.0
FIRST_LIMIT = 2.0
LARGEST_LIMIT = 32.0
DECREASE = 0.5


@dataclass(slots=True)
class Endpoint:
    """One server.

    Attributes:
        address: `host:port`.
        open: whether the circuit breaker blocks requests.
        probing: whether a probe is running.
        failures: the number of rejections and failed probes since the last success.
        misses: the number of missed deadlines in a row.
        in_flight: the number of requests in flight.
        probe_at: the time of the next probe.
        fault: the fault of an ejected server.
    """

    address: str
    open: bool = False
    probing: bool = False
    failures: int = 0
    misses: int = 0
    in_flight: int = 0
    probe_at: float = 0.0
    fault: str = ""


class Endpoints:
    """All servers with the same models, initially all healthy."""

    def __init__(self, addresses: Iterable[str]) -> None:
        self.all = [Endpoint(address) for address in addresses]

    def pick(self) -> int | None:
        """Return the healthy server with the fewest requests in flight; None if all are ejected."""
        healthy = [k for k, one in enumerate(self.all) if not one.open]
        return min(healthy, key=lambda k: self.all[k].in_flight, default=None)

    def due(self, now: float) -> list[int]:
        """Return the ejected servers that are to be probed now."""
        return [k for k, one in enumerate(self.all) if one.open and not one.probing and one.probe_at <= now]

    def wait(self, now: float) -> float:
        """Return the seconds until a server may be probed or asked, at least a little."""
        return max(FIRST_BACKOFF, min((one.probe_at - now for one in self.all if one.open), default=0.0))

    def succeeded(self, at: int) -> None:
        """Record an answer to a request or a probe. A rejection of the request's content counts: the server is available."""
        one = self.all[at]
        one.open = False
        one.failures = 0
        one.misses = 0
        one.fault = ""

    def missed(self, at: int, now: float) -> None:
        """Record a missed deadline. A server that is ejected for it is probed at once: it may only be slow."""
        one = self.all[at]
        one.misses += 1
        if one.misses >= MISSES and not one.open:
            one.open = True
            one.probe_at = now
            one.fault = "does not answer in time"

    def failed(self, at: int, now: float, fault: str) -> None:
        """Record that the server rejected a request, is unavailable, or failed a probe."""
        one = self.all[at]
        one.failures += 1
        one.open = True
        one.fault = fault
        one.probe_at = now + min(LONGEST_BACKOFF, FIRST_BACKOFF * 2 ** (min(one.failures, 16) - 1))

    def complaint(self) -> str:
        """Return the faults of the ejected servers."""
        return "; ".join(f"{one.address}: {one.fault}" for one in self.all if one.open)


@dataclass(slots=True)
class ConcurrencyLimit:
    """Limits the requests in flight to `limit`."""

    limit: float = FIRST_LIMIT
    decreased_at: float = float("-inf")

    def room(self, in_flight: int) -> bool:
        """Return whether another request may be sent."""
        return in_flight < int(self.limit)

    def answered(self, in_flight: int) -> None:
        """Record a timely answer; `in_flight` includes it. A window that is not full leaves the limit unchanged."""
        if in_flight >= int(self.limit):
            self.limit = min(LARGEST_LIMIT, self.limit + 1 / self.limit)

    def missed(self, sent_at: float, now: float) -> None:
        """Record that a request sent at `sent_at` missed its deadline, or that the server had no capacity."""
        if sent_at >= self.decreased_at:
            self.limit = max(1.0, self.limit * DECREASE)
            self.decreased_at = now
