"""The counters of a session: plain numbers that the metrics read from other threads."""

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """The totals of a session, as plain numbers that the metrics read from other threads.

    Attributes:
        commits: confirmed commits.
        aborts: failed transactions.
        fenced: failures because another producer had taken over a transactional id.
        rotations: producers replaced after a slow commit.
        commit_seconds: total time that the session's thread has waited for commits.
        last_commit_seconds: duration of the last batch's commit; 0 if batches have no commit of their own.
        last_ending_seconds: the part of `last_commit_seconds` after the broker had confirmed the records.
        open_since: when the open transaction, or the wait for other transactions, began (monotonic seconds); None if
            neither is in progress.
    """

    commits: int = 0
    aborts: int = 0
    fenced: int = 0
    rotations: int = 0
    commit_seconds: float = 0.0
    last_commit_seconds: float = 0.0
    last_ending_seconds: float = 0.0
    open_since: float | None = None

    def committed(self, waited: float, commit_seconds: float = 0.0, ending: float = 0.0) -> None:
        """Count a confirmed commit.

        Args:
            waited: how long the session's thread has waited for the commit (seconds).
            commit_seconds: the duration of the commit (seconds).
            ending: the part of `commit_seconds` after the broker had confirmed the records.
        """
        self.commits += 1
        self.commit_seconds += waited
        self.last_commit_seconds = commit_seconds
        self.last_ending_seconds = ending
