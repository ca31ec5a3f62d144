"""How often a scorer goes back to the committed offsets before it is better replaced by a new process. Pure."""

from publisher.errors import Aborted, Evicted, Fatal, Fenced
from publisher.session import RecoveryBudget

REFUSED_SECONDS = 60.0  # a member that is refused for so long should have been told what it is now


class RecoveryLimits:
    """For the scorer `replica` of the group `name`. Times are monotonic seconds."""

    def __init__(self, replica: str, name: str) -> None:
        self._replica = replica
        self._name = name
        self._budget = RecoveryBudget()
        self._refused: tuple[int, float] | None = None

    def allow(self, error: Aborted, now: float, commits: int) -> None:
        """One more recovery, from `error`, after so many commits in all. Raises Fatal where it is one too many.

        A member that the group refuses, or that another process fences, is no failure: it will be told what it is now. That
        only has to come to an end.
        """
        if not isinstance(error, Evicted | Fenced):
            if self._budget.spent(now, commits):
                raise Fatal(f"three recoveries without a commit in between: {error}", "see the broker's log")
        elif self._refused is None or self._refused[0] != commits:
            self._refused = commits, now
        elif now - self._refused[1] > REFUSED_SECONDS:
            if isinstance(error, Fenced):
                raise taken("another live process", self._replica, self._name)
            raise Fatal(f"the group has refused this member for {REFUSED_SECONDS:g} s: {error}", "see the broker's log")


def taken(who: str, replica: str, name: str) -> Fatal:
    """The end of a process whose replica is another's."""
    said = f"{who} runs as replica {replica!r} of {name!r}"
    return Fatal(said, "give each process a replica of its own: --set replica=...", 3)
