"""What a relay knows of itself, for metrics, health and people. Plain values, each written by one thread."""

import logging
import time
from dataclasses import dataclass, field

from publisher.kafka.partitions import Partition
from publisher.relay.transform import Route, Tally
from publisher.transactions.protocol import Counters

log = logging.getLogger(__name__)

SILENT_SECONDS = 2.0  # a source that was not heard for longer is behind by at least that


@dataclass
class LaneState:
    """What a lane did. Times are monotonic, in seconds. `stopped` says why, of partitions that are not copied any more;
    `known` are those that were ever copied by this process."""

    number: int
    tally: Tally = field(default_factory=Tally)
    counters: Counters = field(default_factory=Counters)
    bytes: int = 0
    heartbeat: float = field(default_factory=time.monotonic)
    checkpoint_at: float = field(default_factory=time.monotonic)
    routes: dict[Partition, Route] = field(default_factory=dict)
    stopped: dict[Partition, str] = field(default_factory=dict)
    known: set[Partition] = field(default_factory=set)

    def lag_records(self) -> int:
        """Offsets of the source that are not at the destination yet, as far as known."""
        return sum(max(0, route.end - route.committed) for route in list(self.routes.values()))

    def lag_seconds(self, now_ms: int) -> float:
        """The time since the oldest last copied record of a partition in which records wait, or since nothing waited there; 0
        where none do."""
        behind = [route for route in list(self.routes.values()) if route.end > route.committed]
        level = [max(route.timestamp_ms, route.level_ms) for route in behind]
        waiting = [at for at in level if at >= 0]
        return max(0, now_ms - min(waiting)) / 1_000 if waiting else 0.0


@dataclass(frozen=True)
class Trouble:
    """What ended a life of the relay: the family of the error, its text, and when (Unix ms)."""

    family: str
    text: str
    at_ms: int


class RelayState:
    """The relay `name` over all its lives. `seen` is when the source's topics were last found unchanged (monotonic seconds);
    `retention` how long the source keeps the records of each topic (seconds), of those that it deletes by age; `unreadable` how
    many keys of the checkpoint topic had an unreadable newest record when it was last read."""

    def __init__(self, lanes: int, name: str) -> None:
        self.name = name
        self.lanes = [LaneState(number) for number in range(lanes)]
        self.restarts = 0
        self.registered = False
        self.copying_since: float | None = None
        self.copying = False
        self.seen = float("-inf")
        self.trouble: Trouble | None = None
        self.troubles: dict[str, int] = {}
        self.retention: dict[str, float] = {}
        self.unreadable = 0

    def transactions(self) -> int:
        return sum(lane.counters.commits for lane in self.lanes)

    def began(self) -> None:
        if self.copying_since is None:
            self.copying_since = time.monotonic()
        else:
            self.restarts += 1
        self.copying = True

    def note(self, family: str, error: Exception) -> None:
        log.warning("copying ends for now (%s): %s", family, error)
        self.trouble = Trouble(family, str(error), time.time_ns() // 1_000_000)
        self.troubles[family] = self.troubles.get(family, 0) + 1

    def silence(self, now: float) -> float:
        """Seconds for which the source has not been heard, where that is more than usual; else 0."""
        age = now - max(self.seen, self.copying_since or now)
        return age if age > SILENT_SECONDS else 0.0

    def not_ready(self) -> str | None:
        """None where records are copied; else why not."""
        if not self.copying:
            return self.trouble.text if self.trouble else "starting"
        silence = self.silence(time.monotonic())
        return f"the source has not answered for {silence:.1f} s" if silence else None

    def not_live(self, limit: float) -> str | None:
        """None where every lane has moved within `limit` seconds, or none copies; else which has not."""
        now = time.monotonic()
        stuck = [lane.number for lane in self.lanes if self.copying and now - lane.heartbeat > limit]
        return f"lanes {stuck} have not moved for {limit:.0f} s" if stuck else None
