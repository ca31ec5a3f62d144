"""The restart policy of workers: pure decisions with `now` in monotonic seconds."""

from collections import Counter

from scorer.worker.retry_backoff import backoff

STEADY_SECONDS = 60.0  # a worker that has served so long begins anew at the first
LASTING = (2, 3)  # exit codes that the next start would meet again: the configuration is wrong, or the worker is refused


class Restarts:
    """Records since when workers serve, and how often each failed in a row."""

    def __init__(self) -> None:
        self._serving: dict[int, float] = {}
        self._failures: Counter[int] = Counter()
        self._anyone_served = False

    def serving(self, worker: int, now: float) -> None:
        """Record that the worker has started and scores."""
        self._serving[worker] = now
        self._anyone_served = True

    def ended(self, worker: int, code: int, now: float) -> float | None:
        """Return when to restart a worker that ended by itself, by its exit code or negated signal; None to end all workers.

        Until a worker has served, the first end is the end, as with a single process. After that a worker is restarted, with
        growing delays. Only an error that the next start would repeat ends the command, and only if no other worker serves: a
        policy file that was damaged since their start, for example, harms none of them.
        """
        since = self._serving.pop(worker, now)
        if not self._anyone_served or (code in LASTING and not self._serving):
            return None
        self._failures[worker] = 1 if now - since >= STEADY_SECONDS else self._failures[worker] + 1
        return now + backoff(self._failures[worker])
