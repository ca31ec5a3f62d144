"""Pause reading while a server that scoring needs is unavailable, without loss of events or partitions.

The current batch is read again after the outage. The partitions stay assigned, because the group is still polled. If
`model.fallback` is configured, its constant score answers the events after the model servers have been unavailable for
`model.fallback.after_ms`.
"""

from collections.abc import Callable

from publisher.runtime.dependency_wait import MODEL_SERVERS, DependencyUnavailable, Outages
from scorer.consumer.consumer import EventConsumer


class BackendOutage:
    """The current outage of one dependency of a scorer. At most one dependency at a time is recorded.

    `clock` returns monotonic seconds. `fallback_seconds` is the time from the start of an outage of the model servers until
    `model.fallback` answers in place of the servers; None if no fallback is configured.
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
        """Return to the committed offsets, and pause reading.

        The pause ends after the retry delay of the error, or when `model.fallback` begins to answer, whichever is first. Call
        this method only if all published batches are known to be committed.
        """
        now = self._note(error)
        self._outages.begin(error.dependency, error)
        due_at = self._due(error)
        self._until = now + error.retry_seconds if due_at is None else min(now + error.retry_seconds, due_at)
        self._intake.rewind()

    def use_fallback(self, error: DependencyUnavailable) -> bool:
        """Return whether the fallback (`model.fallback`) must answer now, because the outage has lasted long enough.

        If so, the fallback answers all events until the retry delay of the error is over.
        """
        now = self._note(error)
        due_at = self._due(error)
        if due_at is None or now < due_at:
            return False
        self._outages.begin(error.dependency, error, optional=True)
        self._covered_until = now + error.retry_seconds
        return True

    def fallback_active(self) -> bool:
        """Return whether the fallback answers now, without a request to the model servers; see `use_fallback`."""
        return self._clock() < self._covered_until

    def _note(self, error: DependencyUnavailable) -> float:
        """Record the dependency of the error, and return the current time. End a recorded outage of another dependency."""
        now = self._clock()
        if self._dependency != error.dependency:
            self.end()
            self._since = now
        self._dependency = error.dependency
        return now

    def _due(self, error: DependencyUnavailable) -> float | None:
        """Return the time at which the fallback begins to answer, in monotonic seconds.

        The result is None if no fallback is configured, or if the dependency of the error is not the model servers.
        """
        if self._fallback_seconds is None or error.dependency != MODEL_SERVERS:
            return None
        return self._since + self._fallback_seconds

    def blocks(self, wait: float) -> bool:
        """Return whether the retry delay still runs. If so, poll the group for `wait` seconds with all partitions paused."""
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
        """End the outage. Call this method if a model has answered a batch, or if no partition is assigned."""
        if self._dependency:
            self._outages.end(self._dependency)
            self._dependency = ""
            self._covered_until = float("-inf")
