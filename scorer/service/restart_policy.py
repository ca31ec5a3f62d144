"""What becomes of a group of workers when one of them ends: pure decisions, `now` handed in (monotonic seconds)."""

from collections import Counter

from scorer.worker.retry_backoff import backoff

STEADY_SECONDS = 60.0  # a worker that has served so long begins anew at the first
LASTING = (2, 3)  # exit codes that the next start would meet again: the configuration is wrong, or the worker is refused


class Restarts:
    """Remembers who served since when, and how often each worker failed in a row."""

    def __init__(self) -> None:
        self._serving: dict[int, float] = {}
        self._failures: Counter[int] = Counter()
        self._anyone_served = False

    def serving(self, worker: int, now: float) -> None:
        """The worker is through its start and scores."""
        self._serving[worker] = now
        self._anyone_served = True

    def ended(self, worker: int, code: int, now: float) -> float | None:
        """When to start a worker again that nobody asked to end, by its exit code or negated signal; None where all are to end.

        Until one of them has served everything is as with a single process: the first end is the end. After that an end is
        followed by a restart, later and later in a row. Only what would be the same at the next start ends the command, and
        only when no other worker serves: a policy file that was damaged since they started, for instance, harms none of them.
        """
        since = self._serving.pop(worker, now)
        if not self._anyone_served or (code in LASTING and not self._serving):
            return None
        self._failures[worker] = 1 if now - since >= STEADY_SECONDS else self._failures[worker] + 1
        return now + backoff(self._failures[worker])
