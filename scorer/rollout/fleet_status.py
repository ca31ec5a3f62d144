"""How far the scorers have applied a move of their channel, according to their status records. Pure.

A scorer has `flipped` if it serves the move's revision, has `refused` if it rejected a version of the move, and is `waiting`
otherwise.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from model_registry.channels.history import ChannelMove
from publisher.kafka.partitions import Partition
from scorer.observability.status_record import STALE_SECONDS, ScorerStatus, read

FLIPPED = "flipped"
REFUSED = "refused"
WAITING = "waiting"
SCORERS = 10_000  # the largest number of scorers of one status topic
RECORD_BYTES = 16_000_000  # the largest total size of the last records of all scorers
WANTED_PARTITIONS = 100_000  # the largest number of partitions that a move waits for

V = TypeVar("V")


class NewestScorers(dict[str, V]):
    """One value per scorer, limited to the scorers with the newest status records.

    If there are more than SCORERS scorers or RECORD_BYTES bytes of records, the scorer with the oldest record is removed.
    """

    # Every process with write access to the status topic can report scorers that do not exist. A removed scorer that still runs
    # returns with its next heartbeat.

    def __init__(self) -> None:
        super().__init__()
        self._sizes: dict[str, int] = {}
        self._bytes = 0

    def put(self, scorer: str, value: V, size: int) -> None:
        """Store the value of a scorer as the newest; `size` is the size of its record in bytes."""
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
    """How far one live scorer has applied a move of the channel.

    Attributes:
        outcome: FLIPPED if the scorer serves the revision of the move, REFUSED if it refuses a version of the move, or WAITING.
        reason: Why the scorer refuses the version; empty otherwise.
    """

    scorer: str
    outcome: str
    version: str
    revision: int
    partitions: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MoveProgress:
    """How far all live scorers together have applied a move of the channel.

    Attributes:
        outcome: FLIPPED if every scorer serves the revision of the move. REFUSED if a scorer refuses a version of the move and
            no scorer waits. Otherwise, or if no scorer is live or `missing` is not empty, WAITING.
        scorers: The progress of each live scorer.
        missing: The partitions that had a live scorer at some time since the move, and have none now.
    """

    outcome: str
    scorers: tuple[ScorerProgress, ...]
    missing: tuple[Partition, ...] = ()


@dataclass(slots=True)
class Fleet:
    """The last status record of each scorer, and the last time at which the scorer was known to be alive (Unix seconds).

    Attributes:
        caught_up: Whether the status topic has been read to its end.
    """

    # After that, a record with the state `running` proves that its scorer is alive when the record arrives.

    last: NewestScorers[tuple[ScorerStatus, float]] = field(default_factory=NewestScorers)
    caught_up: bool = False

    def update(self, key: bytes | None, value: bytes | None, now: float) -> tuple[ScorerStatus, float] | None:
        """Store a record of the status topic.

        Returns:
            The status of the scorer, and the last time at which the scorer is known to have been alive (Unix seconds); None if
            the record is not the status of a scorer.
        """
        if (record := read(key, value)) is None:
            return None
        running = self.caught_up and record.state == "running"
        update = record, now if running else min(now, record.heartbeat_ms / 1_000)
        self.last.put(record.scorer, update, len(value or b""))
        return update

    def live(self, now: float, channel: str) -> list[ScorerStatus]:
        """Return the status of each running scorer that follows the channel and is not a shadow, sorted by name."""
        running = [
            record
            for record, received in self.last.values()
            if record.state == "running" and not record.shadow and now - received < STALE_SECONDS
        ]
        return sorted((record for record in running if record.tag in ("", channel)), key=lambda record: record.scorer)

    def shadowed(self, now: float) -> bool:
        """Return whether a shadow runs."""
        return any(
            record.shadow and record.state == "running" and now - received < STALE_SECONDS
            for record, received in self.last.values()
        )


def move_progress(move: ChannelMove, fleet: Fleet, wanted: set[Partition], now: float) -> MoveProgress:
    """Return how far the live scorers that follow the move's channel have applied the move.

    Args:
        move: The move.
        fleet: The last status records of the scorers.
        wanted: All partitions that a live scorer has owned since the move.
        now: The time in Unix seconds.
    """
    # The outcome is `flipped` if every scorer serves the move's revision or a later one. It is `refused` if no scorer waits and
    # at least one has refused the move. It is `waiting` otherwise, and whenever a wanted partition has no scorer.
    scorers = tuple(_scorer_progress(move, record) for record in fleet.live(now, move.channel))
    missing = tuple(sorted(wanted - live_partitions(move, fleet, now)))
    outcomes = {scorer.outcome for scorer in scorers}
    if not scorers or missing or WAITING in outcomes:
        return MoveProgress(WAITING, scorers, missing)
    return MoveProgress(REFUSED if REFUSED in outcomes else FLIPPED, scorers)


def live_partitions(move: ChannelMove, fleet: Fleet, now: float) -> set[Partition]:
    """Return the partitions of the live scorers that follow the move's channel."""
    return {(p.topic, p.partition) for record in fleet.live(now, move.channel) for p in record.partitions}


def add_partitions(wanted: set[Partition], partitions: Iterable[Partition]) -> None:
    """Add `partitions` to `wanted`, unless it has WANTED_PARTITIONS partitions already."""
    for partition in partitions:
        if len(wanted) >= WANTED_PARTITIONS:
            return
        wanted.add(partition)


def _scorer_progress(move: ChannelMove, record: ScorerStatus) -> ScorerProgress:
    champion = record.versions.get("champion")
    count = len(record.partitions)
    version, revision = (champion.version, champion.revision) if champion else ("", 0)
    answering = {version.version for version in record.versions.values()} if revision >= move.revision else {version}
    wanted = [name for name in (move.to_version, *(role.version for role in move.roles)) if name not in answering]
    reason = next((record.refused[name] for name in wanted if name in record.refused), None)
    if reason is not None and record.aspired_revision >= move.revision >= revision:
        return ScorerProgress(record.scorer, REFUSED, version, revision, count, reason)
    if revision >= move.revision:
        return ScorerProgress(record.scorer, FLIPPED, version, revision, count)
    return ScorerProgress(record.scorer, WAITING, version, revision, count)
