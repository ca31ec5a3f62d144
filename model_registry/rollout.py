"""How far a move of a channel has come: what scorers told of themselves maps to flipped, refused or still to come. Pure.

Scorers tell in the topic `<name>.status` (key: the scorer; compacted). Records of the same topic whose key begins with
`_channel/` are notices to the scorers, not from them.
"""

from dataclasses import dataclass, field

import msgspec

from model_registry.channels.history import Move

NOTICE = "_channel/"
STALE_SECONDS = 15.0  # a scorer tells every 5 s; one that has been silent for so long is gone
FLIPPED, REFUSED, WAITING = "flipped", "refused", "waiting"

Partition = tuple[str, int]


class _Partition(msgspec.Struct, frozen=True):
    topic: str
    partition: int


class Served(msgspec.Struct, frozen=True):
    """The version that a scorer serves in a role, and the channel's revision that made it so."""

    version: str
    digest: str
    revision: int


class ScorerRecord(msgspec.Struct, frozen=True):
    """What a scorer tells, as far as a rollout needs it. `heartbeat_ms` is Unix ms by the scorer's clock."""

    scorer: str
    state: str
    heartbeat_ms: int
    partitions: list[_Partition]
    versions: dict[str, Served]
    refused: dict[str, str]
    tag: str = ""
    aspired_revision: int = 0

    @property
    def champion(self) -> Served | None:
        """What answers."""
        return self.versions.get("champion")

    @property
    def owned(self) -> list[Partition]:
        """The partitions that it scores."""
        return [(p.topic, p.partition) for p in self.partitions]


@dataclass(frozen=True, slots=True)
class Standing:
    """One live scorer in a rollout: flipped, refused (with the reason) or waiting."""

    scorer: str
    outcome: str
    version: str
    revision: int
    partitions: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A rollout now. `missing` are partitions that some scorer had and none has; `outcome` is what stands for all."""

    outcome: str
    scorers: tuple[Standing, ...]
    missing: tuple[Partition, ...] = ()


@dataclass(slots=True)
class Fleet:
    """The last word of each scorer of a status topic, and when it was heard, in seconds of the caller's clock."""

    last: dict[str, tuple[ScorerRecord, float]] = field(default_factory=dict)

    def hear(self, record: ScorerRecord, heard: float) -> None:
        """Take in a record that is newer than all before of its scorer."""
        self.last[record.scorer] = record, heard

    def live(self, now: float) -> list[ScorerRecord]:
        """The scorers that run, by name."""
        heard = [r for r, at in self.last.values() if r.state == "running" and now - at < STALE_SECONDS]
        return sorted(heard, key=lambda record: record.scorer)


def read(key: bytes | None, value: bytes | None) -> ScorerRecord | None:
    """A record of the status topic; None for notices, tombstones, and what is no scorer's record."""
    if not key or not value or key.startswith(NOTICE.encode()):
        return None
    try:
        return msgspec.json.decode(value, type=ScorerRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def notice_key(channel: str) -> str:
    """The key of the notice that a channel has moved."""
    return NOTICE + channel


def notice(move: Move, repository: str) -> bytes:
    """The notice's value: for people who look into the topic; scorers go by the key and ask the registry."""
    return msgspec.json.encode(
        {"repository": repository, "channel": move.channel, "revision": move.revision, "digest": move.to_digest, "at": move.at}
    )


def judge(move: Move, fleet: Fleet, wanted: set[Partition], now: float) -> Verdict:
    """Where the move stands. `wanted` are all partitions that a live scorer has had since it was made.

    Scorers that follow another tag play no part. `flipped`: every live scorer serves the move's revision or a later one, and
    together they have every wanted partition. `refused`: each has decided, and one has refused.
    """
    live = [record for record in fleet.live(now) if record.tag in ("", move.channel)]
    standings = tuple(_standing(move, record) for record in live)
    missing = tuple(sorted(wanted - {p for record in live for p in record.owned}))
    outcomes = {standing.outcome for standing in standings}
    if not standings or missing or WAITING in outcomes:
        return Verdict(WAITING, standings, missing)
    return Verdict(REFUSED if REFUSED in outcomes else FLIPPED, standings)


def partitions(move: Move, fleet: Fleet, now: float) -> set[Partition]:
    """What the live scorers of the move's channel have now."""
    return {p for record in fleet.live(now) if record.tag in ("", move.channel) for p in record.owned}


def _standing(move: Move, record: ScorerRecord) -> Standing:
    serves, count = record.champion, len(record.partitions)
    version, revision = (serves.version, serves.revision) if serves else ("", 0)
    if revision >= move.revision:
        return Standing(record.scorer, FLIPPED, version, revision, count)
    reason = record.refused.get(move.to_version)
    if record.aspired_revision >= move.revision and reason is not None:
        return Standing(record.scorer, REFUSED, version, revision, count, reason)
    return Standing(record.scorer, WAITING, version, revision, count)
