"""When the loop goes back to the committed offsets after a failure, and where there is no going back. Pure."""

from publisher.errors import Aborted, Evicted, Fatal, Fenced, MemberLost

FIRST_SECONDS = 0.5  # before the first try that waits; each further one waits twice as long
LONGEST_SECONDS = 30.0
REFUSED_SECONDS = 60.0  # a member that is refused for so long should have been told what it is now
SERIES_SECONDS = 30.0  # refusals that lie further apart have nothing to do with each other
AT_ONCE = 2  # recoveries without a commit in between that are made without a pause


class RetryBackoff:
    """For the scorer `replica` of the group `name`. Times are monotonic seconds. `pending` is the failure that the loop has to
    recover from, None while there is none."""

    def __init__(self, replica: str, name: str) -> None:
        self.pending: Aborted | None = None
        self._replica = replica
        self._name = name
        self._due = 0.0
        self._commits = self._failures = 0
        self._refused: float | None = None
        self._last = 0.0

    def failed(self, error: Aborted, now: float, commits: int) -> Aborted:
        """The loop met `error` after so many `commits` in all. Returns the failure to recover from.

        A member that the group refuses, or that another process fences, is no failure: it will be told what it is now. Where
        that does not come, another member has to join. Raises Fatal where another process goes on fencing this one.
        """
        self.pending, pause = self._judge(error, now, commits)
        self._due = now + pause
        return self.pending

    def due(self, now: float) -> bool:
        """Whether the pause before the pending recovery is over."""
        return now >= self._due

    def recovered(self) -> None:
        """The committed offsets tell where to go on."""
        self.pending = None

    def _judge(self, error: Aborted, now: float, commits: int) -> tuple[Aborted, float]:
        """What to recover from, and the seconds to wait before that."""
        if commits != self._commits:
            self._commits, self._failures, self._refused = commits, 0, None
        if not isinstance(error, Evicted | Fenced):
            self._failures += 1
            return error, backoff(self._failures - AT_ONCE) if self._failures > AT_ONCE else 0.0
        before, self._last = self._last, now
        if self._refused is None or now - before > SERIES_SECONDS:
            self._refused = now
        elif now - self._refused > REFUSED_SECONDS:
            if isinstance(error, Fenced):
                raise replica_conflict("another live process", self._replica, self._name)
            self._refused = None
            return MemberLost(f"the group has refused this member for {REFUSED_SECONDS:g} s: {error}"), 0.0
        return error, 0.0


def backoff(failures: int) -> float:
    """Seconds to wait after so many failures in a row, one or more."""
    return float(min(LONGEST_SECONDS, FIRST_SECONDS * 2 ** min(failures - 1, 16)))


def replica_conflict(who: str, replica: str, name: str) -> Fatal:
    """The end of a process whose replica is another's."""
    said = f"{who} runs as replica {replica!r} of {name!r}"
    return Fatal(said, "give each process a replica of its own: --set replica=...", 3)
