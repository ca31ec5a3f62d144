"""Invented log records of a rollout `r` (candidate 2.0.0, champion 1.0.0), in the form that a rollout controller writes."""

from itertools import count
from typing import Any

from scorer.rollout.controller import log_records
from scorer.rollout.controller.log_records import (
    COMMAND,
    STATE,
    EntryKind,
    LogEntry,
    LoggedVersion,
    OperatorCommand,
    PlannedMove,
    RolloutStatus,
)

CONTROLLER = "m.rollout/0"
PLAN = {
    "candidate": "2.0.0",
    "steps": [
        {"shadow": "20%", "bake": "30m"},
        {"canary": "5%", "bake": "15m"},
        {"canary": "25%", "approve": True},
        {"promote": True},
    ],
}
OLD, NEW = LoggedVersion("sha256:" + "1" * 64, "1.0.0"), LoggedVersion("sha256:" + "2" * 64, "2.0.0")
RolloutRecord = LogEntry | RolloutStatus | OperatorCommand
_numbers = count()


def record(content: RolloutRecord) -> tuple[bytes, bytes]:
    """Return the key and the value of a record for the topic of rollouts."""
    suffix = (
        content.seq
        if isinstance(content, LogEntry)
        else STATE
        if isinstance(content, RolloutStatus)
        else f"{COMMAND}/{next(_numbers)}"
    )
    return f"r/{suffix}".encode(), log_records.encode(content)


def judgement(estimate: float = 0.001, low: float = -0.002, high: float = 0.004) -> dict[str, Any]:
    """Return a report like that of `scorer judge` for 4,000 pairs of answers, with this interval for the rule `errors`."""
    errors = {"rule": "errors", "margin": 0.005, "estimate": estimate, "low": low, "high": high, "pairs": 4_000, "cells": 500}
    flips = {"rule": "flips", "margin": 0.05, "estimate": None, "low": None, "high": None, "pairs": 0, "cells": 0}
    return {
        "verdict": "hold",
        "why": ["flips: no pairs"],
        "rules": [errors, flips],
        "champion": {"digest": OLD.digest, "version": OLD.version},
        "candidate": {"digest": NEW.digest, "version": NEW.version},
        "drift": {"psi": 0.02, "ks": 0.03},
        "decisions": [
            {"champion": "late", "candidate": "late", "events": 900},
            {"champion": "late", "candidate": "on time", "events": 100},
        ],
        "dropped": {"one answer only": 7},
        "behind_seconds": 0.4,
        "read": [],
    }


def started(now: float) -> LogEntry:
    """Return the first entry of the rollout's log, with the time one minute before `now` (Unix seconds)."""
    at_ms = int((now - 60) * 1_000)
    return LogEntry("r", 0, EntryKind.STARTED, at_ms, "ann", why=["better"], plan=PLAN, champion=OLD, candidate=NEW, revision=1)


def entry(now: float, seq: int, kind: EntryKind, step: int, **changed: Any) -> LogEntry:
    """Return an entry of the rollout's log, with the time half a minute before `now` (Unix seconds)."""
    return LogEntry("r", seq, kind, **{"at_ms": int((now - 30) * 1_000), "by": CONTROLLER, "step": step, **changed})


def in_canary(now: float) -> list[LogEntry]:
    """Return the entries of a rollout from its start to the canary of 5 percent, at channel revision 3."""
    shadow, canary = (
        PlannedMove(1, OLD.version, shadow=NEW.version, pairs=20),
        PlannedMove(2, NEW.version, NEW.digest, canary=5),
    )
    why = ["every rule is within its margin"]
    return [
        started(now),
        entry(now, 1, EntryKind.INTENDED, 0, move=shadow),
        entry(now, 2, EntryKind.MOVED, 0, revision=2),
        entry(now, 3, EntryKind.INTENDED, 1, move=canary, verdict="promote", why=why, judgement=judgement()),
        entry(now, 4, EntryKind.MOVED, 1, revision=3),
    ]


def state(now: float, step: int, **changed: Any) -> RolloutStatus:
    """Return the status of a step that the controller writes at `now` (Unix seconds)."""
    facts: dict[str, Any] = {"baked": 300.0, "judgement": judgement(), "waits": ["flips: no pairs"]}
    return RolloutStatus(**{"controller": CONTROLLER, "at_ms": int(now * 1_000), "step": step, **facts, **changed})
