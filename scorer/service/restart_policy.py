"""The restart policy of workers: pure decisions with `now` in monotonic seconds."""

from collections import Counter

from scorer.worker.retry_backoff import backoff

STEADY_SECONDS = 60.0  # a worker that has served so long restarts with the first delay
LASTING = (2, 3)  # exit codes of errors that the next start would repeat: a wrong configuration, or a rejected worker


class RestartPolicy:
    """Decides when a worker is restarted, by the time since it serves and the number of its failures in a row."""

    def __init__(self) -> None:
        self._serving: dict[int, float] = {}
        self._failures: Counter[int] = Counter()
        self._has_served = False

    def serving(self, worker: int, now: float) -> None:
        """Record that the worker has started and scores."""
        self._serving[worker] = now
        self._has_served = True

    def ended(self, worker: int, code: int, now: float) -> float | None:
        """Return when to restart a worker that ended by itself; None to end all workers.

        Until a worker has served, the first end of a worker ends the command, as with a single process. After that, workers
        are restarted with growing delays. An error that the next start would repeat ends the command only if no other worker
        serves: a policy file that was damaged meanwhile, for example, does not affect running workers.

        Args:
            worker: the number of the worker.
            code: its exit code, or the negated signal that killed it.
            now: the time of its end.
        """
        since = self._serving.pop(worker, now)
        if not self._has_served or (code in LASTING and not self._serving):
            return None
        self._failures[worker] = 1 if now - since >= STEADY_SECONDS else self._failures[worker] + 1
        return now + backoff(self._failures[worker])
