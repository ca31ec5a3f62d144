"""Selection of the server for the next request, and the limit of requests in flight. Pure; times are monotonic seconds.

A server that fails a request, or misses several deadlines in a row, gets no further requests (it is ejected). It is probed
after a growing backoff, and readmitted after a successful probe. The limit of requests in flight follows additive increase,
multiplicative decrease: it grows by one after a full window of timely responses, and is halved if a request misses its
deadline.
"""

from collections.abc import Iterable
from dataclasses import dataclass

MISSES = 3  # missed deadlines in a row that eject a server: an event may be the cause of a single one
FIRST_BACKOFF = 0.1
LONGEST_BACKOFF = 2.0
FIRST_LIMIT = 2.0
LARGEST_LIMIT = 32.0
DECREASE = 0.5


@dataclass(slots=True)
class Endpoint:
    """The health of one server.

    Attributes:
        address: `host:port`.
        open: whether the circuit breaker is open, that is, the server is ejected and gets no requests.
        probing: whether a probe is running.
        failures: the number of failed requests and probes since the last success.
        misses: the number of missed deadlines in a row.
        in_flight: the number of requests in flight.
        probe_at: the time of the next probe, in monotonic seconds.
        fault: why the server is ejected; empty if it is healthy.
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
    """The servers of one model version, numbered from 0. All are healthy at first."""

    def __init__(self, addresses: Iterable[str]) -> None:
        self.all = [Endpoint(address) for address in addresses]

    def select(self) -> int | None:
        """Return the number of the healthy server with the fewest requests in flight; None if all servers are ejected."""
        healthy = [k for k, one in enumerate(self.all) if not one.open]
        return min(healthy, key=lambda k: self.all[k].in_flight, default=None)

    def due(self, now: float) -> list[int]:
        """Return the numbers of the ejected servers whose next probe is due."""
        return [k for k, one in enumerate(self.all) if one.open and not one.probing and one.probe_at <= now]

    def wait(self, now: float) -> float:
        """Return the seconds until the next probe of an ejected server is due, but at least FIRST_BACKOFF."""
        return max(FIRST_BACKOFF, min((one.probe_at - now for one in self.all if one.open), default=0.0))

    def succeeded(self, at: int) -> None:
        """Record that the server with the number `at` answered a request or a probe, and readmit the server."""
        # An error response counts too, if the content of the request caused the error.
        one = self.all[at]
        one.open = False
        one.failures = 0
        one.misses = 0
        one.fault = ""

    def record_missed_deadline(self, at: int, now: float) -> None:
        """Record a missed deadline. After MISSES in a row, eject the server and make its probe due at once."""
        # The probe need not wait for a backoff, because the server may only be slow.
        one = self.all[at]
        one.misses += 1
        if one.misses >= MISSES and not one.open:
            one.open = True
            one.probe_at = now
            one.fault = "does not answer in time"

    def failed(self, at: int, now: float, fault: str) -> None:
        """Record a failed request or probe, and eject the server."""
        one = self.all[at]
        one.failures += 1
        one.open = True
        one.fault = fault
        one.probe_at = now + min(LONGEST_BACKOFF, FIRST_BACKOFF * 2 ** (min(one.failures, 16) - 1))

    def describe_faults(self) -> str:
        """Return the faults of all ejected servers as text."""
        return "; ".join(f"{one.address}: {one.fault}" for one in self.all if one.open)


@dataclass(slots=True)
class ConcurrencyLimit:
    """The adaptive limit of the requests in flight to all servers."""

    limit: float = FIRST_LIMIT
    decreased_at: float = float("-inf")

    def room(self, in_flight: int) -> bool:
        """Return whether the limit allows another request while `in_flight` requests are in flight."""
        return in_flight < int(self.limit)

    def record_response(self, in_flight: int) -> None:
        """Record a timely response. Raise the limit if as many requests were in flight as it allows.

        `in_flight` is the number of requests in flight, including the answered one.
        """
        if in_flight >= int(self.limit):
            self.limit = min(LARGEST_LIMIT, self.limit + 1 / self.limit)

    def record_missed_deadline(self, sent_at: float, now: float) -> None:
        """Record a request that missed its deadline or was rejected for lack of capacity, and halve the limit."""
        # The limit is not halved again for a request that was sent before the last decrease.
        if sent_at >= self.decreased_at:
            self.limit = max(1.0, self.limit * DECREASE)
            self.decreased_at = now
