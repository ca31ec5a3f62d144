"""A broker with one CPU and a load, and a scorer that publishes at the pace of `TransactionPacing`. Seconds are simulated."""

import random
from dataclasses import dataclass, field

import numpy as np

from scorer.worker.transaction_pacing import TransactionPacing

REQUESTS = 8  # consecutive requests of a transaction
AFTERWARDS = 0.3  # share of a transaction's CPU after its response: markers and readers
DISPATCH = 0.0002  # seconds that a request takes beside the broker's CPU
SCORING = 0.001  # seconds


@dataclass
class Simulation:
    """A broker that receives events at a steady `rate` (events/s).

    An event costs `event_cost` seconds of CPU, a transaction `transaction_cost`. Requests are served in turn; the costs of a
    transaction's requests vary at random, unless `jitter` is 0.
    """

    pacing: TransactionPacing
    rate: float
    event_cost: float
    transaction_cost: float
    jitter: float = 1.0
    seed: int = 1
    now: float = 0.0
    commits: list[float] = field(default_factory=list)
    takes: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._backlog = 0.0  # seconds of CPU that wait at the broker
        self._event_count = 0  # events
        self._random = random.Random(self.seed)

    def run(self, seconds: float) -> "Simulation":
        """Continue for this number of seconds."""
        until = self.now + seconds
        while self.now < until:
            self._pass(self.pacing.wait(self.now))
            self._transaction(*self._take())
        return self

    def percentile(self, percent: float) -> float:
        return float(np.percentile(self.latencies, percent))

    @property
    def intervals(self) -> list[float]:
        """Return the seconds from each transaction to the next."""
        return np.diff(self.takes).tolist()

    @property
    def share(self) -> float:
        """Return the share of the broker's CPU for transactions."""
        return len(self.commits) * self.transaction_cost / self.now

    def _take(self) -> tuple[int, int]:
        """Take the available events, at least one. Return the first number and the number after the last."""
        first = self._event_count
        self._pass(max(0.0, first / self.rate + self._backlog - self.now))
        self._event_count = max(first, int((self.now - self._backlog) * self.rate)) + 1
        self.takes.append(self.now)
        self.pacing.begin(self.now)
        return first, self._event_count

    def _transaction(self, first: int, end: int) -> None:
        self._pass(SCORING)
        began, request_cost = self.now, self.transaction_cost * (1 - AFTERWARDS) / REQUESTS
        for _ in range(REQUESTS):
            self._backlog += request_cost * (1 + self.jitter * (self._random.expovariate(1) - 1))
            self._pass(DISPATCH + self._backlog)
        self._backlog += self.transaction_cost * AFTERWARDS
        self.commits.append(self.now - began)
        self.pacing.committed(self.now - began, self.now - self.takes[-1])
        self.latencies += [self.now - number / self.rate for number in range(first, end, max(1, (end - first) // 20))]

    def _pass(self, seconds: float) -> None:
        """Advance the time while the load continues."""
        self.now += seconds
        self._backlog = max(0.0, self._backlog + seconds * (self.rate * self.event_cost - 1))
