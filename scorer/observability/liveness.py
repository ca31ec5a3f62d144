"""What the owner thread shows of its work to the threads that tell about it: plain values, each replaced whole; and what
/livez and /readyz make of it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from publisher.runtime.dependencies import Outages
from publisher.transactions.protocol import Counters

LONG_SECONDS = 30.0  # of a transaction: as long as the alert ScorerOpenTransaction waits


@dataclass(slots=True)
class WorkerProgress:
    """`heartbeat` is in monotonic seconds; `lag` in records, `lag_seconds` as in `lag.py`; `last_event_ms` is the time of the
    last answered event; `state` says what the scorer is at while it has not `joined`; `scoring` is set once the owner thread
    goes round; `paused` says why a partition is not read, where that is wrong."""

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
        """The owner thread waits for something, and has not hung up."""
        self.heartbeat = time.monotonic()


def not_live(progress: WorkerProgress, limit: float, clock: Callable[[], float] = time.monotonic) -> str | None:
    """What is wrong where the scoring thread has not moved for `limit` seconds. While a scorer starts, nothing is scored."""
    age = clock() - progress.heartbeat
    return f"the scoring thread has not moved for {age:.1f} s" if progress.scoring and age >= limit else None


def not_ready(
    outages: Outages, counters: Counters, progress: WorkerProgress, clock: Callable[[], float] = time.monotonic
) -> str | None:
    """What is wrong where the scorer waits for something outside, holds a transaction open for long, or is not in its group."""
    since = counters.open_since  # the owner thread may change it meanwhile
    age = 0.0 if since is None else clock() - since
    late = f"a transaction has been open for {age:.0f} s" if age > LONG_SECONDS else None
    return outages.summary() or late or (None if progress.joined else progress.state)
