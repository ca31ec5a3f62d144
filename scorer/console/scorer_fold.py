"""The scorers as they tell of themselves: the last word of each, and how fast it goes. Folded, without a clock of its own."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from confluent_kafka import Message

from model_registry.channels.history import ChannelMove
from publisher.kafka.partitions import Partition
from scorer.observability.status_record import STALE_SECONDS, ScorerStatus, VersionStatus
from scorer.rollout import fleet_status
from scorer.rollout.fleet_status import NewestScorers

FORGOTTEN_SECONDS = 3_600.0  # a scorer that was not heard for so long is counted, and listed no more
SHORTEST_SECONDS = 1.0  # a change is told at once: of two records closer than this no rate is made
RUNNING, SILENT = "running", "silent"
NOTHING = VersionStatus("", "", "", 0)


@dataclass(frozen=True, slots=True)
class ScorerState:
    """A scorer's last record; `heard` in Unix seconds. `rate` in events a second and `fill` in events a batch are those since
    the record `base`."""

    status: ScorerStatus
    heard: float
    base: ScorerStatus
    rate: float = 0.0
    fill: float = 0.0

    @property
    def champion(self) -> VersionStatus:
        """What it serves; of an empty name where that is nothing."""
        return self.status.versions.get("champion", NOTHING)

    @property
    def lag(self) -> int:
        """Records behind the ends of its partitions."""
        return sum(p.lag for p in self.status.partitions)

    def state(self, now: float) -> str:
        """running, stopped, or silent where a running one has not been heard of for long."""
        silent = self.status.state == RUNNING and now - self.heard >= STALE_SECONDS
        return SILENT if silent else self.status.state


@dataclass(slots=True)
class ScorerFold:
    """The last word of every scorer of a status topic, by name."""

    last: NewestScorers[ScorerState] = field(default_factory=NewestScorers)
    fleet: fleet_status.Fleet = field(default_factory=fleet_status.Fleet)
    _wanted: set[Partition] = field(default_factory=set)
    _move: tuple[str, int] = ("", 0)

    def hear(self, key: bytes | None, value: bytes | None, now: float) -> bool:
        """Take in a record; whether it was a scorer's. `now` in Unix seconds."""
        if (found := self.fleet.hear(key, value, now)) is None:
            return False
        name = found[0].scorer
        self.last.put(name, _after(self.last.get(name), *found), len(value or b""))
        return True

    def live(self, now: float) -> list[ScorerState]:
        """The scorers that run, by name; shadows are none."""
        running = (h for h in self.last.values() if h.state(now) == RUNNING and not h.status.shadow)
        return sorted(running, key=lambda h: h.status.scorer)

    def listed(self, now: float) -> list[ScorerState]:
        """Those heard of within the last hour, by name."""
        recent = (h for h in self.last.values() if now - h.heard < FORGOTTEN_SECONDS)
        return sorted(recent, key=lambda h: h.status.scorer)

    def verdict(self, move: ChannelMove, now: float) -> fleet_status.Verdict:
        """Where a move of a channel stands; partitions seen since this move was first asked about are wanted."""
        if self._move != (move.channel, move.revision):
            self._move, self._wanted = (move.channel, move.revision), set()
        fleet_status.widen(self._wanted, fleet_status.partitions(move, self.fleet, now))
        return fleet_status.judge(move, self.fleet, self._wanted, now)

    def lags(self, now: float) -> Iterator[tuple[Partition, int]]:
        """Records behind the end, of each partition that somebody has."""
        for heard in self.live(now):
            for p in heard.status.partitions:
                yield (p.topic, p.partition), p.lag


def last_states(messages: Iterable[Message], now: float) -> list[ScorerState]:
    """Return the last state of every scorer in records of the status topic, sorted by name; `now` in Unix seconds."""
    fold = ScorerFold()
    for message in messages:
        fold.hear(message.key(), message.value(), now)
    return [state for _, state in sorted(fold.last.items())]


def _after(before: ScorerState | None, status: ScorerStatus, heard: float) -> ScorerState:
    if before is None or before.base.started_ms != status.started_ms or status.state != RUNNING:
        return ScorerState(status, heard, status)
    seconds = (status.heartbeat_ms - before.base.heartbeat_ms) / 1_000
    if seconds < SHORTEST_SECONDS:
        return ScorerState(status, heard, before.base, before.rate, before.fill)
    events, batches = (status.counters.get(n, 0) - before.base.counters.get(n, 0) for n in ("events", "batches"))
    return ScorerState(status, heard, status, max(0.0, events / seconds), events / batches if batches > 0 else 0.0)
