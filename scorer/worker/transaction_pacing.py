"""When the next transaction may begin. Pure."""

from collections import deque
from dataclasses import dataclass, field
from statistics import median

# Where commits queue for one CPU the median latency is least at 1.4 commits from one transaction to the next. At 3 it is 14 %
# above that, and there are 0.6 times as many transactions.
COMMIT_MULTIPLE = 3.0
LONGEST_INTERVAL = 0.1  # seconds
BEHIND_SECONDS = 1.0
RECENT = 3
OVERLAP_SECONDS = 0.001  # what is overlapped takes at least so long: handing over to another thread costs a tenth of it
OVERLAP_SHARE = 2 / 3  # of a usual commit


@dataclass(slots=True)
class TransactionPacing:
    """The broker pays milliseconds of CPU for each transaction, whatever is in it, so the next one waits for as long as its
    oldest event can still be answered within `target` seconds. Where commits take long the broker is busy, and the next one
    begins `COMMIT_MULTIPLE` commits after the last. The middle one of the last `RECENT` transactions counts, so the second slow
    commit in a row makes the next transactions fewer and larger, the second quick one ends that, and a lone one does neither.
    """

    target: float
    began: float = float("-inf")
    oldest: float = 0.0
    commits: deque[float] = field(default_factory=lambda: deque([0.0], RECENT))
    answers: deque[float] = field(default_factory=lambda: deque([0.0], RECENT))

    def begin(self, now: float, *, full: bool = False) -> None:
        """A transaction begins at `now` (monotonic seconds); `full`: waiting had not made it larger."""
        self.began = float("-inf") if full else now

    def take(self, oldest: float) -> None:
        """Events are taken of which the first is `oldest` seconds old."""
        self.oldest = oldest

    def committed(self, commit: float, answered: float) -> None:
        """Its commit took `commit` seconds, 0 where batches have none of their own; its events were answered `answered` seconds
        after it had begun."""
        self.commits.append(commit)
        self.answers.append(answered)

    def wait(self, now: float) -> float:
        """Seconds until the next may begin, 0 where it may at once: always where commits take no time."""
        return max(0.0, self.began + self.interval - now)

    @property
    def behind(self) -> bool:
        """Whether events have waited for so long that what is fetched had better be taken at once: a client fetches no more
        before."""
        return self.oldest >= BEHIND_SECONDS

    @property
    def interval(self) -> float:
        """Seconds from one transaction to the next."""
        commit = median(self.commits)
        if not commit:
            return 0.0
        return min(max(self.target - median(self.answers), COMMIT_MULTIPLE * commit), LONGEST_INTERVAL)

    def overlap(self, scoring: float) -> bool:
        """Whether a commit had better be waited for while the next batch, of `scoring` seconds, is decoded and scored.

        With s to score and c to commit an event waits 1.5 (s + c) on average if nothing overlaps, and 2.5 max(s, c) or
        1.5 s + c if it does: the gain begins at s = 2/3 c. Below that the next batch would only be taken too early.
        """
        return scoring >= max(OVERLAP_SECONDS, OVERLAP_SHARE * median(self.commits))
