"""How long a scorer waits before it goes back to the committed offsets once more, and where there is no going back. Pure."""

from collections import deque

from publisher.errors import Aborted, Evicted, Fatal, Fenced, MemberLost
from scorer.restarts import backoff

EVICTED_SECONDS = 60.0  # a group that refuses a member for so long should have told it that it is none any more
TWIN_SECONDS, TWIN_TIMES = 60.0, 3  # who is fenced so often within that, without a commit in between, has a twin
AT_ONCE = 2  # recoveries without a commit in between that are made without a pause


class RecoveryLimits:
    """For the scorer `replica` of the group `name`. Times are monotonic seconds."""

    def __init__(self, replica: str, name: str) -> None:
        self._replica = replica
        self._name = name
        self._fenced: deque[float] = deque(maxlen=TWIN_TIMES)
        self._commits = self._failures = 0
        self._evicted: tuple[int, float] | None = None

    def judge(self, error: Aborted, now: float, commits: int) -> tuple[Aborted, float]:
        """What to recover from after `error`, and the seconds to wait before that. `commits`: so many in all.

        A member that the group refuses is no failure: it will be told what it is now. Where that does not come, another has to
        join. Raises Fatal where another process fences this one again and again.
        """
        if isinstance(error, Evicted):
            if self._evicted is None or self._evicted[0] != commits:
                self._evicted = commits, now
            elif now - self._evicted[1] > EVICTED_SECONDS:
                self._evicted = None
                error = MemberLost(f"the group has refused this member for {EVICTED_SECONDS:g} s: {error}")
            return error, 0.0
        if commits != self._commits:
            self._fenced.clear()
            self._commits, self._failures = commits, 0
        self._failures += 1
        if isinstance(error, Fenced):
            self._fenced.append(now)
        if len(self._fenced) == TWIN_TIMES and now - self._fenced[0] <= TWIN_SECONDS:
            raise Fatal(
                f"another live process uses replica {self._replica!r} of {self._name!r}",
                "give each process a replica of its own: --set replica=...",
                3,
            )
        return error, backoff(self._failures - AT_ONCE) if self._failures > AT_ONCE else 0.0
