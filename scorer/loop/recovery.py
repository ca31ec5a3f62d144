"""How long a scorer waits before it goes back to the committed offsets once more, and where there is no going back. Pure."""

from publisher.errors import Aborted, Evicted, Fatal, Fenced, MemberLost
from scorer.loop.restarts import backoff

REFUSED_SECONDS = 60.0  # a member that is refused for so long should have been told what it is now
SERIES_SECONDS = 30.0  # refusals that lie further apart have nothing to do with each other
AT_ONCE = 2  # recoveries without a commit in between that are made without a pause


class RecoveryLimits:
    """For the scorer `replica` of the group `name`. Times are monotonic seconds."""

    def __init__(self, replica: str, name: str) -> None:
        self._replica = replica
        self._name = name
        self._commits = self._failures = 0
        self._refused: float | None = None
        self._last = 0.0

    def judge(self, error: Aborted, now: float, commits: int) -> tuple[Aborted, float]:
        """What to recover from after `error`, and the seconds to wait before that. `commits`: so many in all.

        A member that the group refuses, or that another process fences, is no failure: it will be told what it is now. Where
        that does not come, another has to join. Raises Fatal where another process goes on fencing this one.
        """
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
                raise taken("another live process", self._replica, self._name)
            self._refused = None
            return MemberLost(f"the group has refused this member for {REFUSED_SECONDS:g} s: {error}"), 0.0
        return error, 0.0


def taken(who: str, replica: str, name: str) -> Fatal:
    """The end of a process whose replica is another's."""
    said = f"{who} runs as replica {replica!r} of {name!r}"
    return Fatal(said, "give each process a replica of its own: --set replica=...", 3)
