"""Pause while servers that scoring needs are unavailable: nothing is read, the group is still polled, and no event is lost.

The current batch is read again when they are back. The partitions stay assigned, because polling continues. With
`model.fallback`, events are answered with its constant once the model servers have been unavailable for long enough.
"""

from collections.abc import Callable

from publisher.runtime.dependencies import MODEL_SERVERS, DependencyUnavailable, Outages
from scorer.consumer.consumer import EventConsumer


class BackendOutage:
    """The current outage of one scorer, at most one at a time.

    `clock` is in monotonic seconds. `fallback_seconds`: the time until the fallback answers, None for never.
    """

    def __init__(
        self, intake: EventConsumer, outages: Outages, clock: Callable[[], float], fallback_seconds: float | None = None
    ) -> None:
        self._intake = intake
        self._outages = outages
        self._clock = clock
        self._fallback_seconds = fallback_seconds
        self._dependency = ""
        self._since = 0.0
        self._until: float | None = None
        self._covered_until = float("-inf")

    def begin(self, error: DependencyUnavailable) -> None:
        """Return to the committed offsets, until it makes sense to retry. Everything published is known to be committed."""
        now = self._note(error)
        self._outages.begin(error.dependency, error)
        due_at = self._due(error)
        self._until = now + error.retry_seconds if due_at is None else min(now + error.retry_seconds, due_at)
        self._intake.rewind()

    def use_fallback(self, error: DependencyUnavailable) -> bool:
        """Return whether the fallback answers until it makes sense to retry."""
        now = self._note(error)
        due_at = self._due(error)
        if due_at is None or now < due_at:
            return False
        self._outages.begin(error.dependency, error, optional=True)
        self._covered_until = now + error.retry_seconds
        return True

    def fallback_active(self) -> bool:
        """Return whether the fallback answers without asking the model servers."""
        return self._clock() < self._covered_until

    def _note(self, error: DependencyUnavailable) -> float:
        """Return the time; an outage of another dependency ends the previous one."""
        now = self._clock()
        if self._dependency != error.dependency:
            self.end()
            self._since = now
        self._dependency = error.dependency
        return now

    def _due(self, error: DependencyUnavailable) -> float | None:
        """Return when the fallback starts to answer for this dependency; None if it does not."""
        if self._fallback_seconds is None or error.dependency != MODEL_SERVERS:
            return None
        return self._since + self._fallback_seconds

    def blocks(self, wait: float) -> bool:
        """Return whether it is too early to retry; takes up to `wait` seconds."""
        if self._until is None:
            return False
        if self._clock() < self._until:
            self._intake.pause(self._intake.partitions, "backend unavailable")
            if (batch := self._intake.take(wait, lambda _: 1)) is not None:  # of a partition that was assigned just now
                self._intake.rewind(batch.epochs)
            return True
        self._until = None
        self._intake.resume(self._intake.partitions, "backend unavailable")
        return False

    def end(self) -> None:
        """Record that a model answered a batch."""
        if self._dependency:
            self._outages.end(self._dependency)
            self._dependency = ""
            self._covered_until = float("-inf")
