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
    """Decides when the next transaction begins. Fewer transactions cost the broker less, regardless of their size.

    The next transaction begins as late as possible, but early enough to answer its oldest event within `target` seconds. Slow
    commits show that the broker is busy. Therefore the next transaction begins at least COMMIT_MULTIPLE commit times after the
    start of the last transaction. All times are medians over the last RECENT transactions. Two slow commits in a row therefore
    make transactions fewer and larger, and two fast commits in a row reverse this. A single commit changes nothing.

    Attributes:
        target: the latency target in seconds.
        began: when the last transaction began, in monotonic seconds; -inf if the next transaction need not wait.
        oldest: the age of the first event of the last batch, in seconds.
        commits: the durations of the last commits in seconds.
        answers: for the last batches, the seconds from the start of scoring until the events were answered.
    """

    target: float
    began: float = float("-inf")
    oldest: float = 0.0
    commits: deque[float] = field(default_factory=lambda: deque([0.0], RECENT))
    answers: deque[float] = field(default_factory=lambda: deque([0.0], RECENT))

    def begin(self, now: float, *, full: bool = False) -> None:
        """Record that a transaction begins at `now` (monotonic seconds).

        If `full` is True, a longer wait would not have made this transaction larger. The next transaction may then begin at
        once.
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
        """Return the seconds until the next transaction may begin; 0 if it may begin at once."""
        return max(0.0, self.began + self.interval - now)

    @property
    def is_behind(self) -> bool:
        """Whether the first event of the last batch was at least BEHIND_SECONDS old.

        In this case fetched events are consumed without a pause, because the Kafka client fetches further events only when the
        fetched events are consumed.
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

        Let s be the time of scoring and c the time of a commit. Without overlap, an event waits 1.5 (s + c) on average. With
        overlap, an event waits 2.5 c if s is at most c, and 1.5 s + c if s is greater. Overlap is therefore faster if s is at
        least 2/3 c. If s is smaller, the only effect of overlap would be that the next batch is polled too early.
        """
        return scoring >= max(OVERLAP_SECONDS, OVERLAP_SHARE * median(self.commits))
