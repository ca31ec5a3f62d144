"""Decide when the next transaction may begin. Pure."""

from collections import deque
from dataclasses import dataclass, field
from statistics import median

# If commits queue for one CPU, the median latency is lowest at an interval of 1.4 commits between transactions. At 3 it is 14 %
# higher, and there are 0.6 times as many transactions.
COMMIT_MULTIPLE = 3.0
LONGEST_INTERVAL = 0.1  # seconds
BEHIND_SECONDS = 1.0
RECENT = 3
OVERLAP_SECONDS = 0.001  # the shortest commit to overlap: switching to another thread costs a tenth of this
OVERLAP_SHARE = 2 / 3  # the share of a usual commit


@dataclass(slots=True)
class TransactionPacing:
    """Delays transactions, because each costs the broker milliseconds of CPU regardless of its size.

    The next one waits as long as its oldest event can still be answered within `target` seconds. If commits are slow, the
    broker is busy, and the next one begins `COMMIT_MULTIPLE` commits after the last. The median of the last `RECENT`
    transactions counts: the second slow commit in a row makes transactions fewer and larger, the second quick one ends that,
    and a single one does neither.
    """

    target: float
    began: float = float("-inf")
    oldest: float = 0.0
    commits: deque[float] = field(default_factory=lambda: deque([0.0], RECENT))
    answers: deque[float] = field(default_factory=lambda: deque([0.0], RECENT))

    def begin(self, now: float, *, full: bool = False) -> None:
        """Record that a transaction begins at `now` (monotonic seconds); `full`: waiting would not have made it larger."""
        self.began = float("-inf") if full else now

    def take(self, oldest: float) -> None:
        """Record that the first event of the batch is `oldest` seconds old."""
        self.oldest = oldest

    def committed(self, commit: float, answered: float) -> None:
        """Record a commit.

        It took `commit` seconds, 0 if batches have no commits of their own; its events were answered `answered` seconds after
        its start.
        """
        self.commits.append(commit)
        self.answers.append(answered)

    def wait(self, now: float) -> float:
        """Return the seconds until the next transaction may begin, 0 for at once: always if commits take no time."""
        return max(0.0, self.began + self.interval - now)

    @property
    def behind(self) -> bool:
        """Return whether events have waited so long that fetched ones should be consumed at once.

        A client fetches no more before that.
        """
        return self.oldest >= BEHIND_SECONDS

    @property
    def interval(self) -> float:
        """Return the seconds between two transactions."""
        commit = median(self.commits)
        if not commit:
            return 0.0
        return min(max(self.target - median(self.answers), COMMIT_MULTIPLE * commit), LONGEST_INTERVAL)

    def overlap(self, scoring: float) -> bool:
        """Return whether the commit should be waited for during decoding and scoring of the next batch (`scoring` seconds).

        With s to score and c to commit an event waits 1.5 (s + c) on average without overlap, and 2.5 max(s, c) or 1.5 s + c
        with it: the gain begins at s = 2/3 c. Below that the next batch would only be polled too early.
        """
        return scoring >= max(OVERLAP_SECONDS, OVERLAP_SHARE * median(self.commits))
