"""What scorers and the registry tell, as the console hears it: made up for its tests."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from model_registry.channels.history import Move
from scorer.console.records import DeadLetter, ScoreRecord, Source, SwapRecord
from scorer.console.state import Channel, RegistryView, State
from scorer.observe.status import PartitionStatus, ScorerStatus, VersionStatus
from tests.support import rollouts
from tests.support.rollouts import Told

NOW = 1_700_000_000.0
"""Unix seconds."""


def digest(version: str) -> str:
    return "sha256:" + version.replace(".", "").ljust(64, "0")


def status(scorer: str = "m.a", version: str = "1.0.0", revision: int = 1, **changed: Any) -> ScorerStatus:
    """A scorer that runs, heard of now."""
    facts: dict[str, Any] = {
        "scorer": scorer,
        "region": "eu-west",
        "state": "running",
        "heartbeat_ms": int(NOW * 1_000),
        "started_ms": 1,
        "pid": 1,
        "partitions": [PartitionStatus("in", 0, 0)],
        "versions": {"champion": VersionStatus("m", version, digest(version), revision)},
        "refused": {},
        "cost": (0.001, 0.00001),
        "counters": {"events": 0, "batches": 0},
        "tag": "prod",
        "aspired_revision": revision,
    }
    return ScorerStatus(**{**facts, **changed})


def hear(state: State, told: ScorerStatus, now: float = NOW) -> None:
    assert state.scorers.hear(told.scorer.encode(), msgspec.json.encode(told), now)


def move(revision: int, version: str, before: str | None = None, reason: str = "better", restores: int | None = None) -> Move:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    origin = digest(before) if before else None
    return Move("prod", revision, "ann@host", reason, at, origin, before, digest(version), version, (), restores)


def registry(*moves: Move) -> RegistryView:
    """A registry whose channel prod has made these moves, the last of them the newest."""
    last = moves[-1]
    channel = Channel("prod", last.to_version, last.to_digest, last.revision, (), moves)
    return RegistryView("oci:registry/m", {"prod": channel}, tuple(dict.fromkeys(m.to_version for m in moves)), read=True)


def swap(partition: int, version: str, offset: int = 0, revision: int = 1) -> SwapRecord:
    return SwapRecord("m.a", "in", partition, offset, version, digest(version), revision, int(NOW * 1_000), "0.9.0", "why")


def score(number: Any, version: str = "1.0.0", **changed: Any) -> ScoreRecord:
    """A score of the event that came 20 ms before."""
    at = int(NOW * 1_000)
    facts: dict[str, Any] = {"version": version, "status": "scored", "source": Source("in", 0, 7), "score": number}
    facts |= {"event_ms": at - 20, "scored_ms": at, "decision": "late"}
    return ScoreRecord(**{**facts, **changed})


def letter(offset: int, reason: str = "wrong-type", value: str = '{"a": "x"}') -> DeadLetter:
    return DeadLetter(0, offset, reason, "field 'a'", "eu/in/0/9", "m:1", int(NOW * 1_000), "k", value, False, (("h", "v"),))


def rollout(state: State, *told: Told) -> None:
    """Have the console hear these records of the rollout `r`."""
    for record in told:
        state.rollouts.hear(*rollouts.record(record))


def in_canary(state: State, **changed: Any) -> None:
    """A rollout whose canary of 5 percent is at revision 3; `changed` is of what its controller told a second ago."""
    rollout(state, *rollouts.in_canary(NOW), rollouts.state(NOW - 1, 1, **changed))
