"""While the servers that hold the model are away: nothing is read, the group is still heard, and no event is given up.

The batch in hand is read again when they are back. The partitions stay ours all the while, because polling goes on.
"""

import logging
from collections.abc import Callable, Collection

from scorer.backends import BackendAway
from scorer.intake import Intake, Partition
from scorer.observe.metrics import Metrics
from scorer.observe.progress import Progress

log = logging.getLogger(__name__)


class Absence:
    """For one scorer; at most one at a time. `clock` is in monotonic seconds."""

    def __init__(self, intake: Intake, metrics: Metrics, progress: Progress, clock: Callable[[], float]) -> None:
        self._intake = intake
        self._metrics = metrics
        self._progress = progress
        self._clock = clock
        self._until: float | None = None

    def begin(self, error: BackendAway) -> None:
        """Back to the committed offsets, until it makes sense to ask again. What was published is known to be committed."""
        if self._progress.away is None:
            log.warning("%s; the partitions wait", error)
        self._progress.away = str(error)
        self._metrics.away.set(1)
        self._intake.rewind()
        self._until = self._clock() + error.retry_seconds

    def lasts(self, wait: float, held: Collection[Partition]) -> bool:
        """Whether it is too early to ask again; takes up to `wait` seconds. `held` are partitions that others hold."""
        if self._until is None:
            return False
        if self._clock() < self._until:
            self._intake.hold(self._intake.epochs)
            if (batch := self._intake.take(wait, lambda _: 1)) is not None:  # of a partition that was assigned just now
                self._intake.rewind(batch.epochs)
            return True
        self._until = None
        self._intake.release(self._intake.epochs.keys() - set(held))
        return False

    def end(self) -> None:
        """A batch was answered."""
        if self._progress.away is not None:
            log.info("the model's servers answer again")
            self._progress.away = None
            self._metrics.away.set(0)
