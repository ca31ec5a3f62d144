"""What /livez and /readyz answer: None where all is well, else what is wrong, in one line."""

import time
from collections.abc import Callable

from publisher.process.outages import Outages
from publisher.session.protocol import Counters
from scorer.observe.progress import Progress

LONG_SECONDS = 30.0  # of a transaction: as long as the alert ScorerOpenTransaction waits


def not_live(progress: Progress, limit: float, clock: Callable[[], float] = time.monotonic) -> str | None:
    """Whether the scoring thread has not moved for `limit` seconds. While a scorer starts, nothing is scored."""
    age = clock() - progress.heartbeat
    return f"the scoring thread has not moved for {age:.1f} s" if progress.scoring and age >= limit else None


def not_ready(
    outages: Outages, counters: Counters, progress: Progress, clock: Callable[[], float] = time.monotonic
) -> str | None:
    """Whether the scorer waits for something outside, holds a transaction open for long, or is not in its group yet."""
    since = counters.open_since  # the owner thread may change it meanwhile
    age = 0.0 if since is None else clock() - since
    late = f"a transaction has been open for {age:.0f} s" if age > LONG_SECONDS else None
    return outages.told() or late or (None if progress.joined else progress.state)
