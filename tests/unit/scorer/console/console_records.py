"""Records of scorers and the registry for tests of the console."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from model_registry.channels.history import ChannelMove
from model_registry.signing.attestation import Attestation
from model_registry.signing.predicates import COMPARISON, EVALUATION, PROVENANCE
from scorer.console.records import DeadLetter, VersionChange
from scorer.console.state import Channel, ConsoleState, RegistryView
from scorer.console.training.attestations import AttestationLibrary, collect_attestations
from scorer.observability.status_record import PartitionStatus, ScorerStatus, VersionStatus
from scorer.scores.decode_record import CompleteScoreRecord, EventPosition
from tests.support import rollouts, trained
from tests.support.rollouts import RolloutRecord

NOW = 1_700_000_000.0
"""Unix seconds."""


def digest(version: str) -> str:
    return "sha256:" + version.replace(".", "").ljust(64, "0")


def status(scorer: str = "m.a", version: str = "1.0.0", revision: int = 1, **changed: Any) -> ScorerStatus:
    """Return the status record of a running scorer, received now."""
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


def add(state: ConsoleState, status: ScorerStatus, now: float = NOW) -> None:
    assert state.scorers.add(status.scorer.encode(), msgspec.json.encode(status), now)


def move(
    revision: int, version: str, before: str | None = None, reason: str = "better", restores: int | None = None
) -> ChannelMove:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    origin = digest(before) if before else None
    return ChannelMove("prod", revision, "ann@host", reason, at, origin, before, digest(version), version, (), restores)


def registry(*moves: ChannelMove) -> RegistryView:
    """Return a registry whose channel prod has made these moves, oldest first."""
    newest = moves[-1]
    channel = Channel("prod", newest.to_version, newest.to_digest, newest.revision, (), moves)
    return RegistryView("oci:registry/m", {"prod": channel}, tuple(dict.fromkeys(m.to_version for m in moves)), read=True)


def swap(partition: int, version: str, offset: int = 0, revision: int = 1) -> VersionChange:
    return VersionChange("m.a", "in", partition, offset, version, digest(version), revision, int(NOW * 1_000), "0.9.0", "why")


def score(number: Any, version: str = "1.0.0", **changed: Any) -> CompleteScoreRecord:
    """Return a score of an event from 20 ms before."""
    at = int(NOW * 1_000)
    facts: dict[str, Any] = {"version": version, "status": "scored", "source": EventPosition("in", 0, 7), "score": number}
    facts |= {"id": "", "digest": "", "event_ms": at - 20, "scored_ms": at, "decision": "late"}
    return CompleteScoreRecord(**{**facts, **changed})


def letter(offset: int, reason: str = "wrong-type", value: str = '{"a": "x"}') -> DeadLetter:
    return DeadLetter(0, offset, reason, "field 'a'", "eu/in/0/9", "m:1", int(NOW * 1_000), "k", value, False, (("h", "v"),))


def rollout(state: ConsoleState, *rollout_records: RolloutRecord) -> None:
    """Add records of the rollout `r` to the state."""
    for record in rollout_records:
        state.rollouts.apply(*rollouts.record(record))


def in_canary(state: ConsoleState, **changed: Any) -> None:
    """Add a rollout with a canary of 5 percent at revision 3. `changed` overrides the report of its controller."""
    rollout(state, *rollouts.in_canary(NOW), rollouts.state(NOW - 1, 1, **changed))


def _documents(text: str, change: float) -> dict[str, dict[str, Any]]:
    """Return the documents of run 1, with this text in every text field."""
    champion = ("1.0.0", digest("1.0.0"))
    comparison = trained.comparison(1, digest("2.0.0"), champion, change)
    provenance, evaluation = trained.provenance(1, champion), trained.evaluation()
    if text:
        comparison["rules"].append({"name": text, "passed": False, "value": 1, "bound": 2})
        comparison["slices"].append({"field": text, "value": text, "rows": 1, "difference": None})
        comparison |= {"metric": text, "because": text, "run": text}
        comparison["rows"] |= {"digest": text, "from": text, "to": text}
        for rival in ("champion", "challenger"):
            comparison[rival] |= {"version": text, "digest": text, "metrics": {text: 0.5}}
            comparison[rival]["confusion_matrix"] = {"labels": [text, "b"], "counts": [[1, 2], [3, 4]]}
        parameters = provenance["buildDefinition"]["internalParameters"]
        parameters |= {"run": text, "recipe": text, "parameters": {text: text}}
        parameters["search"]["metric"] = text
        parameters["search"]["best"]["parameters"] = {text: [text]}
        provenance["buildDefinition"]["resolvedDependencies"] += [{"name": "events", "uri": text}]
        for dependency in provenance["buildDefinition"]["resolvedDependencies"]:
            dependency["digest"] = {"sha256": text}
    return {PROVENANCE: provenance, EVALUATION: evaluation, COMPARISON: comparison}


def a_run(text: str = "", key: str | None = "training", change: float = -0.0061) -> AttestationLibrary:
    """Return the attestations of a run, signed by this trusted key or unsigned."""
    fault = "" if key else "the signature is not from a trusted key"
    attestations = [
        Attestation(type_, predicate, digest("3"), key, fault) for type_, predicate in _documents(text, change).items()
    ]
    return AttestationLibrary((collect_attestations(trained.version(1), digest("2.0.0"), attestations),), read=True)
