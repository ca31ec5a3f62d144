"""Decide when the worker returns to the committed offsets after a failure, and when its process must end. Pure."""

from publisher.errors import Aborted, Evicted, Fatal, Fenced, MemberLost

FIRST_SECONDS = 0.5  # the first delay; each further delay is twice as long
LONGEST_SECONDS = 30.0
REFUSED_SECONDS = 60.0  # the group should have notified a rejected member within this time
SERIES_SECONDS = 30.0  # a rejection that follows the previous one after a longer interval starts a new series
AT_ONCE = 2  # consecutive recoveries without a commit that start without a delay


class RetryBackoff:
    """The delays between failures and recoveries of one worker. `replica` is its replica name, `name` the name of its group.

    Times are in monotonic seconds. `pending` is the failure from which the worker must recover; None if there is none.
    """

    def __init__(self, replica: str, name: str) -> None:
        self.pending: Aborted | None = None
        self._replica = replica
        self._name = name
        self._due = 0.0
        self._commits = self._failures = 0
        self._refused: float | None = None
        self._last = 0.0

    def failed(self, error: Aborted, now: float, commits: int) -> Aborted:
        """Record a failure, and return the failure to recover from.

        Two errors need no delay before the recovery, because the group will notify the member of a rebalance: Evicted (the
        group rejects this member) and Fenced (another process has fenced this process). If Evicted recurs for REFUSED_SECONDS
        without a commit, the result is MemberLost, so that this process joins the group as a new member.

        Args:
            error: the failure.
            now: the current time.
            commits: the number of commits so far. A new commit resets the count of failures.

        Raises:
            Fatal: Another process has fenced this process for REFUSED_SECONDS.
        """
        self.pending, pause = self._judge(error, now, commits)
        self._due = now + pause
        return self.pending

    def due(self, now: float) -> bool:
        """Return whether the delay before the recovery from `pending` is over."""
        return now >= self._due

    def clear_pending(self) -> None:
        """Clear `pending`, because the worker has returned to the committed offsets."""
        self.pending = None

    def _judge(self, error: Aborted, now: float, commits: int) -> tuple[Aborted, float]:
        """Return the failure to recover from, and the delay before the recovery in seconds."""
        if commits != self._commits:
            self._commits = commits
            self._failures = 0
            self._refused = None
        if not isinstance(error, Evicted | Fenced):
            self._failures += 1
            return error, backoff(self._failures - AT_ONCE) if self._failures > AT_ONCE else 0.0
        previous = self._last
        self._last = now
        if self._refused is None or now - previous > SERIES_SECONDS:
            self._refused = now
        elif now - self._refused > REFUSED_SECONDS:
            if isinstance(error, Fenced):
                raise replica_conflict("another live process", self._replica, self._name)
            self._refused = None
            return MemberLost(f"the group has refused this member for {REFUSED_SECONDS:g} s: {error}"), 0.0
        return error, 0.0


def backoff(failures: int) -> float:
    """Return the delay in seconds after this number (1 or more) of consecutive failures."""
    return float(min(LONGEST_SECONDS, FIRST_SECONDS * 2 ** min(failures - 1, 16)))


def replica_conflict(owner: str, replica: str, name: str) -> Fatal:
    """Return the error for a process whose name `replica` is already in use in the consumer group `name`.

    `owner` describes the process that uses the name, for example "another live process".
    """
    message = f"{owner} already uses the replica name {replica!r} of {name!r}"
    return Fatal(message, "give each process its own replica name: --set replica=...", 3)
