"""The last reported state of each scorer, and its scoring rate. Pure: `now` is an argument."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from confluent_kafka import Message

from model_registry.channels.history import ChannelMove
from publisher.kafka.partitions import Partition
from scorer.observability.status_record import RUNNING, STALE_SECONDS, WAITING, ScorerStatus, VersionStatus
from scorer.rollout import fleet_status
from scorer.rollout.fleet_status import NewestScorers

FORGOTTEN_SECONDS = 3_600.0  # without a heartbeat for this time a scorer is no longer listed
SHORTEST_SECONDS = 1.0  # the shortest time between two records from which a rate is computed; changes are reported at once
SILENT = "silent"
NOTHING = VersionStatus("", "", "", 0)


@dataclass(frozen=True, slots=True)
class ScorerState:
    """The last status record of a scorer, with the rates since an earlier record.

    Attributes:
        status: The last record.
        last_seen: When the last record was received, in Unix seconds.
        base: The earlier record, from which the rates are measured.
        rate: The scored events per second, since the earlier record.
        fill: The average number of events per batch, since the earlier record.
    """

    status: ScorerStatus
    last_seen: float
    base: ScorerStatus
    rate: float = 0.0
    fill: float = 0.0

    @property
    def champion(self) -> VersionStatus:
        """The champion version that the scorer serves; its fields are empty if there is none."""
        return self.status.versions.get("champion", NOTHING)

    @property
    def lag(self) -> int:
        """The lag over all partitions of the scorer, in records."""
        return sum(p.lag for p in self.status.partitions)

    def state(self, now: float) -> str:
        """Return the state in the scorer's last record, or `silent` if no record has arrived for STALE_SECONDS."""
        # A scorer whose last record reports that it has stopped is never silent.
        silent = self.status.state in (RUNNING, WAITING) and now - self.last_seen >= STALE_SECONDS
        return SILENT if silent else self.status.state


@dataclass(slots=True)
class ScorerFold:
    """The last reported state of each scorer, read from the status topic."""

    last: NewestScorers[ScorerState] = field(default_factory=NewestScorers)
    fleet: fleet_status.Fleet = field(default_factory=fleet_status.Fleet)
    _wanted: set[Partition] = field(default_factory=set)
    _move: tuple[str, int] = ("", 0)

    def add(self, key: bytes | None, value: bytes | None, now: float) -> bool:
        """Add a record of the status topic, read at `now` (Unix seconds). Return False if it is not a scorer's status."""
        if (reported := self.fleet.update(key, value, now)) is None:
            return False
        name = reported[0].scorer
        self.last.put(name, _after(self.last.get(name), *reported), len(value or b""))
        return True

    def live(self, now: float) -> list[ScorerState]:
        """Return the states of the running scorers that are not shadows, sorted by the scorers' names."""
        running = (h for h in self.last.values() if h.state(now) == RUNNING and not h.status.shadow)
        return sorted(running, key=lambda h: h.status.scorer)

    def listed(self, now: float) -> list[ScorerState]:
        """Return the scorers with a record in the last FORGOTTEN_SECONDS, sorted by name."""
        recent = (h for h in self.last.values() if now - h.last_seen < FORGOTTEN_SECONDS)
        return sorted(recent, key=lambda h: h.status.scorer)

    def verdict(self, move: ChannelMove, now: float) -> fleet_status.MoveProgress:
        """Return how far the scorers have applied a channel move."""
        # The result covers all partitions that a live scorer has owned at any time since the first call for this move.
        if self._move != (move.channel, move.revision):
            self._move = (move.channel, move.revision)
            self._wanted = set()
        fleet_status.add_partitions(self._wanted, fleet_status.live_partitions(move, self.fleet, now))
        return fleet_status.move_progress(move, self.fleet, self._wanted, now)

    def lags(self, now: float) -> Iterator[tuple[Partition, int]]:
        """Yield each partition that a live scorer owns, with its lag in records."""
        for scorer in self.live(now):
            for p in scorer.status.partitions:
                yield (p.topic, p.partition), p.lag


def last_states(messages: Iterable[Message], now: float) -> list[ScorerState]:
    """Return the last state of every scorer among records of the status topic, sorted by name; `now` is in Unix seconds."""
    fold = ScorerFold()
    for message in messages:
        fold.add(message.key(), message.value(), now)
    return [state for _, state in sorted(fold.last.items())]


def _after(before: ScorerState | None, status: ScorerStatus, last_seen: float) -> ScorerState:
    if before is None or before.base.started_ms != status.started_ms or status.state != RUNNING:
        return ScorerState(status, last_seen, status)
    seconds = (status.heartbeat_ms - before.base.heartbeat_ms) / 1_000
    if seconds < SHORTEST_SECONDS:
        return ScorerState(status, last_seen, before.base, before.rate, before.fill)
    events, batches = (status.counters.get(n, 0) - before.base.counters.get(n, 0) for n in ("events", "batches"))
    return ScorerState(status, last_seen, status, max(0.0, events / seconds), events / batches if batches > 0 else 0.0)
