"""How far a move of a channel has come: the scorers' status records make each scorer flipped, refused or waiting. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from model_registry.channels.history import ChannelMove
from publisher.kafka.partitions import Partition
from scorer.observability.status_record import STALE_SECONDS, ScorerStatus, read

FLIPPED, REFUSED, WAITING = "flipped", "refused", "waiting"
SCORERS = 10_000  # kept of a status topic, at most
RECORD_BYTES = 16_000_000  # of their records
WANTED_PARTITIONS = 100_000  # of a move

V = TypeVar("V")


class NewestScorers(dict[str, V]):
    """One value for each scorer that was heard of most recently: whoever writes to the topic can invent any number of them.

    The scorer that was silent for the longest time is forgotten at the limits of number and bytes. One that runs comes back
    with its next heartbeat.
    """

    def __init__(self) -> None:
        super().__init__()
        self._sizes: dict[str, int] = {}
        self._bytes = 0

    def put(self, scorer: str, value: V, size: int) -> None:
        """Keep a scorer's value, made of a record of so many bytes, as the newest."""
        self._forget(scorer)
        self[scorer] = value
        self._sizes[scorer] = size
        self._bytes += size
        while len(self) > SCORERS or (self._bytes > RECORD_BYTES and len(self) > 1):
            self._forget(next(iter(self)))

    def _forget(self, scorer: str) -> None:
        self.pop(scorer, None)
        self._bytes -= self._sizes.pop(scorer, 0)


@dataclass(frozen=True, slots=True)
class ScorerProgress:
    """One live scorer in a rollout: flipped, refused (with the reason) or waiting."""

    scorer: str
    outcome: str
    version: str
    revision: int
    partitions: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MoveProgress:
    """A rollout now. `outcome` is that of all scorers together; `missing` are partitions that a scorer had and none has."""

    outcome: str
    scorers: tuple[ScorerProgress, ...]
    missing: tuple[Partition, ...] = ()


@dataclass(slots=True)
class Fleet:
    """The last record of each scorer, and when it was heard (Unix seconds). `caught_up`: the status topic's end was reached, so
    what comes now is news."""

    last: NewestScorers[tuple[ScorerStatus, float]] = field(default_factory=NewestScorers)
    caught_up: bool = False

    def hear(self, key: bytes | None, value: bytes | None, now: float) -> tuple[ScorerStatus, float] | None:
        """Take in a record of the topic, those of one scorer in their order. A scorer's, and when it was heard; else None."""
        if (record := read(key, value)) is None:
            return None
        running = self.caught_up and record.state == "running"
        found = record, now if running else min(now, record.heartbeat_ms / 1_000)
        self.last.put(record.scorer, found, len(value or b""))
        return found

    def live(self, now: float, channel: str) -> list[ScorerStatus]:
        """The running scorers that follow a channel, by name; shadows answer nobody, and are none."""
        heard = [r for r, at in self.last.values() if r.state == "running" and not r.shadow and now - at < STALE_SECONDS]
        return sorted((r for r in heard if r.tag in ("", channel)), key=lambda record: record.scorer)

    def shadowed(self, now: float) -> bool:
        """Whether a shadow runs."""
        return any(r.shadow and r.state == "running" and now - at < STALE_SECONDS for r, at in self.last.values())


def move_progress(move: ChannelMove, fleet: Fleet, wanted: set[Partition], now: float) -> MoveProgress:
    """Where the move stands. `wanted` are all partitions that a live scorer has had since the move was made. Scorers that
    follow another tag play no part. `flipped`: every live scorer serves the move's revision or a later one, and together they
    have every wanted partition. `refused`: each has decided, and one has refused."""
    standings = tuple(_standing(move, record) for record in fleet.live(now, move.channel))
    missing = tuple(sorted(wanted - live_partitions(move, fleet, now)))
    outcomes = {standing.outcome for standing in standings}
    if not standings or missing or WAITING in outcomes:
        return MoveProgress(WAITING, standings, missing)
    return MoveProgress(REFUSED if REFUSED in outcomes else FLIPPED, standings)


def live_partitions(move: ChannelMove, fleet: Fleet, now: float) -> set[Partition]:
    """The partitions that the live scorers of the move's channel have now."""
    return {(p.topic, p.partition) for record in fleet.live(now, move.channel) for p in record.partitions}


def add_partitions(wanted: set[Partition], found: Iterable[Partition]) -> None:
    """Add partitions that a live scorer has to those that are wanted, up to a limit that no real topic reaches."""
    for partition in found:
        if len(wanted) >= WANTED_PARTITIONS:
            return
        wanted.add(partition)


def _standing(move: ChannelMove, record: ScorerStatus) -> ScorerProgress:
    serves, count = record.versions.get("champion"), len(record.partitions)
    version, revision = (serves.version, serves.revision) if serves else ("", 0)
    answering = {version.version for version in record.versions.values()} if revision >= move.revision else {version}
    wanted = [name for name in (move.to_version, *(role.version for role in move.roles)) if name not in answering]
    reason = next((record.refused[name] for name in wanted if name in record.refused), None)
    if reason is not None and record.aspired_revision >= move.revision >= revision:
        return ScorerProgress(record.scorer, REFUSED, version, revision, count, reason)
    if revision >= move.revision:
        return ScorerProgress(record.scorer, FLIPPED, version, revision, count)
    return ScorerProgress(record.scorer, WAITING, version, revision, count)
