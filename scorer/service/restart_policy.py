"""The restart policy of workers. Pure; `now` is in monotonic seconds."""

from collections import Counter

from scorer.worker.retry_backoff import backoff

STEADY_SECONDS = 60.0  # a worker that has served for this time restarts with the first, shortest delay
LASTING = (2, 3)  # exit codes of errors that recur at the next start: a wrong configuration, or a rejected worker


class RestartPolicy:
    """Decides when a worker is restarted, from how long the worker has served and how often it failed in a row."""

    def __init__(self) -> None:
        self._serving: dict[int, float] = {}
        self._failures: Counter[int] = Counter()
        self._has_served = False

    def serving(self, worker: int, now: float) -> None:
        """Record that the worker completed its start-up and began to score at `now`."""
        self._serving[worker] = now
        self._has_served = True

    def ended(self, worker: int, code: int, now: float) -> float | None:
        """Return the time at which to restart a worker that ended; None if all workers must end.

        Args:
            worker: the number of the worker.
            code: the exit code of the worker, or the negated number of the signal that killed it.
            now: the time at which the worker ended.
        """
        # Before any worker has served, the end of one worker ends all workers. Afterwards, workers are restarted with growing
        # delays. An error that recurs at the next start (exit codes LASTING) ends all workers if no other worker serves. If
        # other workers serve, they continue, for example after a policy file was damaged.
        since = self._serving.pop(worker, now)
        if not self._has_served or (code in LASTING and not self._serving):
            return None
        self._failures[worker] = 1 if now - since >= STEADY_SECONDS else self._failures[worker] + 1
        return now + backoff(self._failures[worker])
