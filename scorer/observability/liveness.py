"""The progress of the worker's main thread as plain values for other threads, and the checks of /livez and /readyz.

The main thread replaces each value as a whole, so that other threads read it without a lock.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from publisher.runtime.dependency_wait import Outages
from publisher.transactions.counters import Counters

LONG_SECONDS = 30.0  # a scorer with an older open transaction is not ready; as in the alert ScorerOpenTransaction


@dataclass(slots=True)
class WorkerProgress:
    """The progress of a worker's main thread, and totals since the start of the process.

    An event is answered when its score or dead letter is committed.

    Attributes:
        heartbeat: when the main thread last made progress, in monotonic seconds.
        state: what the worker does until it has joined the group, as a text for /readyz.
        scoring: whether the main loop has started.
        joined: whether the worker is a member of the group.
        events: the number of answered events.
        batches: the number of committed batches.
        dead_letters: the number of dead letters.
        recoveries: the number of returns to the committed offsets after a failure.
        paused: for each partition that cannot be read or waits for a table, a sentence with the reason.
        lag: the number of unanswered records by partition.
        lag_seconds: the lag in seconds by partition; see `lag.py`.
        last_event_ms: the timestamp of the last answered event by partition, in Unix ms.
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
        """Record a heartbeat: the main thread makes progress, or waits deliberately."""
        self.heartbeat = time.monotonic()


def not_live(progress: WorkerProgress, limit: float, clock: Callable[[], float] = time.monotonic) -> str | None:
    """Return a message if the main loop runs and made no progress for `limit` seconds; otherwise None."""
    age = clock() - progress.heartbeat
    return f"the scoring thread has not moved for {age:.1f} s" if progress.scoring and age >= limit else None


def not_ready(
    outages: Outages, counters: Counters, progress: WorkerProgress, clock: Callable[[], float] = time.monotonic
) -> str | None:
    """Return the reason why the scorer is not ready; None if it is ready.

    A scorer is not ready while a dependency is unavailable, while a transaction has been open for more than LONG_SECONDS, and
    while the scorer is not in its group.
    """
    since = counters.open_since  # the owner thread may change it meanwhile
    age = 0.0 if since is None else clock() - since
    open_transaction = f"a transaction has been open for {age:.0f} s" if age > LONG_SECONDS else None
    return outages.summary() or open_transaction or (None if progress.joined else progress.state)
