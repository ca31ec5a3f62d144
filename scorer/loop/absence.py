"""While servers are away that scoring needs: nothing is read, the group is still heard, and no event is given up.

The batch in hand is read again when they are back. The partitions stay ours all the while, because polling goes on.
"""

from collections.abc import Callable

from publisher.process.outages import Away, Outages
from scorer.intake.consumer import Intake


class Absence:
    """For one scorer; at most one at a time. `clock` is in monotonic seconds."""

    def __init__(self, intake: Intake, outages: Outages, clock: Callable[[], float]) -> None:
        self._intake = intake
        self._outages = outages
        self._clock = clock
        self._what = ""
        self._until: float | None = None

    def begin(self, error: Away) -> None:
        """Back to the committed offsets, until it makes sense to ask again. What was published is known to be committed."""
        if self._what != error.what:
            self.end()
        self._outages.begin(error.what, error)
        self._what = error.what
        self._until = self._clock() + error.retry_seconds
        self._intake.rewind()

    def lasts(self, wait: float) -> bool:
        """Whether it is too early to ask again; takes up to `wait` seconds."""
        if self._until is None:
            return False
        if self._clock() < self._until:
            self._intake.pause(self._intake.partitions, "away")
            if (batch := self._intake.take(wait, lambda _: 1)) is not None:  # of a partition that was assigned just now
                self._intake.rewind(batch.epochs)
            return True
        self._until = None
        self._intake.resume(self._intake.partitions, "away")
        return False

    def end(self) -> None:
        """A batch was answered."""
        if self._what:
            self._outages.end(self._what)
            self._what = ""
