"""What a controller writes of a rollout `r` of 2.0.0 beside 1.0.0, made up for tests."""

from itertools import count
from typing import Any

from scorer.rollout.controller import log_records
from scorer.rollout.controller.log_records import COMMAND, STATE, Command, Entry, Kind, Planned, State, Version

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
OLD, NEW = Version("sha256:" + "1" * 64, "1.0.0"), Version("sha256:" + "2" * 64, "2.0.0")
Told = Entry | State | Command
_numbers = count()


def record(told: Told) -> tuple[bytes, bytes]:
    """Its key and value in the topic of rollouts."""
    last = told.seq if isinstance(told, Entry) else STATE if isinstance(told, State) else f"{COMMAND}/{next(_numbers)}"
    return f"r/{last}".encode(), log_records.encode(told)


def judgement(estimate: float = 0.001, low: float = -0.002, high: float = 0.004) -> dict[str, Any]:
    """What `scorer judge` tells of 4,000 pairs, with this interval of the rule `errors`."""
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


def started(now: float) -> Entry:
    """A minute before `now` (Unix seconds)."""
    at_ms = int((now - 60) * 1_000)
    return Entry("r", 0, Kind.STARTED, at_ms, "ann", why=["better"], plan=PLAN, champion=OLD, candidate=NEW, revision=1)


def entry(now: float, seq: int, kind: Kind, step: int, **changed: Any) -> Entry:
    """Half a minute before `now`."""
    return Entry("r", seq, kind, **{"at_ms": int((now - 30) * 1_000), "by": CONTROLLER, "step": step, **changed})


def in_canary(now: float) -> list[Entry]:
    """From the start to the canary of 5 percent, at revision 3."""
    shadow, canary = Planned(1, OLD.version, shadow=NEW.version, pairs=20), Planned(2, NEW.version, NEW.digest, canary=5)
    why = ["every rule is within its margin"]
    return [
        started(now),
        entry(now, 1, Kind.INTENDED, 0, move=shadow),
        entry(now, 2, Kind.MOVED, 0, revision=2),
        entry(now, 3, Kind.INTENDED, 1, move=canary, verdict="promote", why=why, judgement=judgement()),
        entry(now, 4, Kind.MOVED, 1, revision=3),
    ]


def state(now: float, step: int, **changed: Any) -> State:
    """What the controller tells of a step at `now`."""
    facts: dict[str, Any] = {"baked": 300.0, "judgement": judgement(), "waits": ["flips: no pairs"]}
    return State(**{"controller": CONTROLLER, "at_ms": int(now * 1_000), "step": step, **facts, **changed})
