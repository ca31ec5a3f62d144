"""When the next transaction may begin. Pure."""

from dataclasses import dataclass

MINIMUM_INTERVAL = 0.005  # seconds between transactions: measured, p99 200 -> 17 ms at 1,000 events/s for 1 ms of p50
MAXIMUM_INTERVAL = 0.050
COMMIT_MULTIPLE = 2.0  # at least this many usual commit times lie between two transactions,
QUIET_COMMIT = 0.005  # and more in proportion where commits take longer than this: then the broker is busy
COMMIT_EWMA = 0.1
OVERLAP_SECONDS = 0.001  # what is overlapped takes at least so long: handing over to another thread costs a tenth of it
OVERLAP_SHARE = 2 / 3  # of a usual commit


@dataclass(slots=True)
class Pacing:
    """When the next transaction may begin: the broker pays milliseconds of CPU for each, whatever is in it."""

    usual_commit: float = 0.0
    began: float = float("-inf")

    def begin(self, now: float, *, full: bool = False) -> None:
        """A transaction begins at `now` (monotonic seconds); `full`: waiting had not made it larger."""
        self.began = float("-inf") if full else now

    def committed(self, seconds: float) -> None:
        """Its commit took `seconds`; 0 where batches have no commits of their own."""
        self.usual_commit += COMMIT_EWMA * (seconds - self.usual_commit)

    def overlap(self, scoring: float) -> bool:
        """Whether a commit had better be waited for while the next batch, of `scoring` seconds, is decoded and scored.

        With s to score and c to commit an event waits 1.5 (s + c) on average if nothing overlaps, and 2.5 max(s, c) or
        1.5 s + c if it does: the gain begins at s = 2/3 c. Below that the next batch would only be taken too early.
        """
        return scoring >= max(OVERLAP_SECONDS, OVERLAP_SHARE * self.usual_commit)

    def wait(self, now: float) -> float:
        """Seconds until the next may begin, 0 where it may at once: always where no commit has taken any time."""
        if not self.usual_commit:
            return 0.0
        busy = max(1.0, self.usual_commit / QUIET_COMMIT)
        interval = min(max(MINIMUM_INTERVAL, COMMIT_MULTIPLE * self.usual_commit * busy), MAXIMUM_INTERVAL)
        return max(0.0, self.began + interval - now)
