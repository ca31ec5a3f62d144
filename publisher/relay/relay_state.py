"""The state of a relay, for metrics, health checks and commands. Plain values, each written by one thread."""

import logging
import time
from dataclasses import dataclass, field

from publisher.kafka.partitions import Partition
from publisher.relay.transform import CopyCounts, Route
from publisher.transactions.counters import Counters

log = logging.getLogger(__name__)

SILENT_SECONDS = 2.0  # if the source has not answered for longer, the lag in seconds is at least this silence


@dataclass
class LaneState:
    """The state of a thread that copies a fixed share of the partitions (a lane). Times are monotonic seconds.

    The counts cover all runs of the relay in this process.

    Attributes:
        number: the number of the lane.
        copy_counts: counts of records.
        counters: counts of transactions.
        bytes: total size of the record values that were read.
        heartbeat: when the thread last reported that it is running.
        checkpoint_at: when the last transaction was committed.
        routes: the partitions that are copied in this run.
        stopped: the partitions that are no longer copied in this run, with the reason.
        begun: the partitions that were copied at any time since the process started.
    """

    number: int
    copy_counts: CopyCounts = field(default_factory=CopyCounts)
    counters: Counters = field(default_factory=Counters)
    bytes: int = 0
    heartbeat: float = field(default_factory=time.monotonic)
    checkpoint_at: float = field(default_factory=time.monotonic)
    routes: dict[Partition, Route] = field(default_factory=dict)
    stopped: dict[Partition, str] = field(default_factory=dict)
    begun: set[Partition] = field(default_factory=set)

    def lag_records(self) -> int:
        """Return the number of source offsets whose copies are not yet committed at the destination."""
        return sum(max(0, route.end - route.committed) for route in list(self.routes.values()))

    def lag_seconds(self, now_ms: int) -> float:
        """Return the largest lag of the partitions in seconds; 0 if none has a backlog."""
        # The lag of a partition is the shorter of two times: since the timestamp of the last copied record, and since the
        # partition last had no backlog.
        behind = [route for route in list(self.routes.values()) if route.end > route.committed]
        last_level = [max(route.timestamp_ms, route.level_ms) for route in behind]
        waiting_since = [at for at in last_level if at >= 0]
        return max(0, now_ms - min(waiting_since)) / 1_000 if waiting_since else 0.0


@dataclass(frozen=True)
class RunFailure:
    """The error that ended a run of the relay.

    Attributes:
        family: the name of the error class in lower case, or "out of range" if the source log lacks the next offset.
        text: the message of the error.
        at_ms: when the run ended (Unix ms).
    """

    family: str
    text: str
    at_ms: int


class RelayState:
    """The state of a relay over all its runs. A run ends with its first failure.

    The relay then starts another run, unless an operator must decide how to continue.

    Attributes:
        name: the relay's name.
        lanes: the state of each copying thread.
        restarts: number of runs that began to copy, not counting the first of them.
        registered: whether this process has ever written its registration to the checkpoint topic.
        copying_since: when the first run began to copy (monotonic seconds); None before that.
        copying: whether records are copied now.
        topics_checked_at: when the topic ids of both clusters were last confirmed to be unchanged (monotonic seconds).
        last_failure: the error that ended the last failed run; None if no run has failed.
        failures: number of failed runs, by the `family` of their errors.
        retention: the retention time of each source topic (`retention.ms`) in seconds. Topics without a time limit are absent.
        unreadable: number of keys of the checkpoint topic whose newest record was unreadable.
    """

    def __init__(self, lanes: int, name: str) -> None:
        self.name = name
        self.lanes = [LaneState(number) for number in range(lanes)]
        self.restarts = 0
        self.registered = False
        self.copying_since: float | None = None
        self.copying = False
        self.topics_checked_at = float("-inf")
        self.last_failure: RunFailure | None = None
        self.failures: dict[str, int] = {}
        self.retention: dict[str, float] = {}
        self.unreadable = 0

    def transactions(self) -> int:
        """Return the number of committed transactions of all copying threads."""
        return sum(lane.counters.commits for lane in self.lanes)

    def record_start(self) -> None:
        """Record that a run begins to copy."""
        if self.copying_since is None:
            self.copying_since = time.monotonic()
        else:
            self.restarts += 1
        self.copying = True

    def record_failure(self, family: str, error: Exception) -> None:
        """Log and record the error that ended a run."""
        log.warning("copying is interrupted (%s): %s", family, error)
        self.last_failure = RunFailure(family, str(error), time.time_ns() // 1_000_000)
        self.failures[family] = self.failures.get(family, 0) + 1

    def silence(self, now: float) -> float:
        """Return the seconds since the source last answered; 0 if they are at most SILENT_SECONDS.

        `now` is in monotonic seconds.
        """
        age = now - max(self.topics_checked_at, self.copying_since or now)
        return age if age > SILENT_SECONDS else 0.0

    def not_ready(self) -> str | None:
        """Return why the relay is not ready, or None if it is ready.

        It is ready while it copies and the source answers.
        """
        if not self.copying:
            return self.last_failure.text if self.last_failure else "starting"
        silence = self.silence(time.monotonic())
        return f"the source has not answered for {silence:.1f} s" if silence else None

    def not_live(self, limit: float) -> str | None:
        """Return a message that names the copying threads without a heartbeat for `limit` seconds; None if there are none."""
        # While no records are copied, all threads count as live.
        now = time.monotonic()
        stuck = [lane.number for lane in self.lanes if self.copying and now - lane.heartbeat > limit]
        return f"lanes {stuck} have made no progress for {limit:.0f} s" if stuck else None
