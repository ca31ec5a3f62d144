"""The progress of the worker's main thread as plain values for other threads, and the checks of /livez and /readyz.

Each value is replaced as a whole.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from publisher.runtime.dependencies import Outages
from publisher.transactions.protocol import Counters

LONG_SECONDS = 30.0  # the age of a transaction for which the alert ScorerOpenTransaction waits


@dataclass(slots=True)
class WorkerProgress:
    """The progress of a worker.

    Attributes:
        heartbeat: the time of the last progress in monotonic seconds.
        state: describes the scorer until it has joined the group.
        scoring: whether the main loop runs.
        joined: whether the scorer is in the group.
        paused: the reason by paused partition.
        lag: the lag in records by partition.
        lag_seconds: the lag in seconds by partition; see `lag.py`.
        last_event_ms: the time of the last answered event by partition.
    """

    heartbeat: float
    state: str = "starting"
    scoring: bool = False
    joined: bool = False
    events: int = 0
    batches: int = 0
    dead_letters: int = 0
    recoveries: int = 0
    paused: dict[tuple[str, int], str] = field(default_factory=dict)
    lag: dict[tuple[str, int], int] = field(default_factory=dict)
    lag_seconds: dict[tuple[str, int], float] = field(default_factory=dict)
    last_event_ms: dict[tuple[str, int], int] = field(default_factory=dict)

    def alive(self) -> None:
        """Record that the main thread makes progress, or waits deliberately."""
        self.heartbeat = time.monotonic()


def not_live(progress: WorkerProgress, limit: float, clock: Callable[[], float] = time.monotonic) -> str | None:
    """Return the fault if the main thread made no progress for `limit` seconds; None while a scorer starts."""
    age = clock() - progress.heartbeat
    return f"the scoring thread has not moved for {age:.1f} s" if progress.scoring and age >= limit else None


def not_ready(
    outages: Outages, counters: Counters, progress: WorkerProgress, clock: Callable[[], float] = time.monotonic
) -> str | None:
    """Return the fault if the scorer waits for a dependency, holds a transaction open, or is not in its group."""
    since = counters.open_since  # the owner thread may change it meanwhile
    age = 0.0 if since is None else clock() - since
    open_transaction = f"a transaction has been open for {age:.0f} s" if age > LONG_SECONDS else None
    return outages.summary() or open_transaction or (None if progress.joined else progress.state)
