"""Decide when the next transaction may begin. Pure."""

from collections import deque
from dataclasses import dataclass, field
from statistics import median

# If commits queue for one CPU, the median latency is lowest at an interval of 1.4 commits between transactions. At 3 it is 14 %
# higher, and there are 0.6 times as many transactions.
COMMIT_MULTIPLE = 3.0
LONGEST_INTERVAL = 0.1  # seconds between two transactions
BEHIND_SECONDS = 1.0  # the age of the oldest event from which fetched events are consumed at once
RECENT = 3  # transactions whose median counts
OVERLAP_SECONDS = 0.001  # the shortest commit to overlap: switching to another thread costs a tenth of this
OVERLAP_SHARE = 2 / 3  # scoring that takes this share of a usual commit is overlapped with it


@dataclass(slots=True)
class TransactionPacing:
    """Spaces transactions, because each costs the broker milliseconds of CPU time regardless of its size.

    The next transaction waits as long as its oldest event can still be answered within `target` seconds. If commits are slow,
    the broker is busy: the next transaction begins at least COMMIT_MULTIPLE commit times after the start of the last. Times are
    medians of the last RECENT transactions. Two slow commits in a row therefore make transactions fewer and larger, two quick
    commits in a row end that, and a single commit changes nothing.

    Attributes:
        target: the latency target in seconds.
        began: when the last transaction began, in monotonic seconds; -inf if the next transaction need not wait.
        oldest: the age of the first event of the last batch, in seconds.
        commits: the durations of the last commits in seconds.
        answers: the times in seconds from the start of scoring a batch until its events were answered.
    """

    target: float
    began: float = float("-inf")
    oldest: float = 0.0
    commits: deque[float] = field(default_factory=lambda: deque([0.0], RECENT))
    answers: deque[float] = field(default_factory=lambda: deque([0.0], RECENT))

    def begin(self, now: float, *, full: bool = False) -> None:
        """Record that a transaction begins at `now` (monotonic seconds).

        If it is `full`, a wait would not have made it larger: the next transaction may then begin at once.
        """
        self.began = float("-inf") if full else now

    def record_age(self, oldest: float) -> None:
        """Record the age of the first event of the fetched batch, in seconds."""
        self.oldest = oldest

    def committed(self, commit: float, answered: float) -> None:
        """Record a committed batch.

        Args:
            commit: the duration of the commit in seconds; 0 if the session has no commit per batch.
            answered: the seconds from the start of scoring until the events of the batch were answered.
        """
        self.commits.append(commit)
        self.answers.append(answered)

    def wait(self, now: float) -> float:
        """Return the seconds until the next transaction may begin; 0 if it may begin at once, or commits take no time."""
        return max(0.0, self.began + self.interval - now)

    @property
    def is_behind(self) -> bool:
        """Whether the last batch was at least BEHIND_SECONDS old.

        Fetched events are then consumed without a pause, because the Kafka client fetches further events only after that.
        """
        return self.oldest >= BEHIND_SECONDS

    @property
    def interval(self) -> float:
        """The seconds from the start of one transaction to the start of the next; 0 if commits take no time."""
        commit = median(self.commits)
        if not commit:
            return 0.0
        return min(max(self.target - median(self.answers), COMMIT_MULTIPLE * commit), LONGEST_INTERVAL)

    def overlap(self, scoring: float) -> bool:
        """Return whether the commit of a batch should overlap the scoring of the next batch, which takes `scoring` seconds.

        Let s be the time of scoring and c the time of a commit. Without overlap an event waits 1.5 (s + c) on average; with
        overlap 2.5 max(s, c) or 1.5 s + c. Overlap pays from s = 2/3 c. Below that, the next batch would only be polled too
        early.
        """
        return scoring >= max(OVERLAP_SECONDS, OVERLAP_SHARE * median(self.commits))
