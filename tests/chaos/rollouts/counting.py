"""What the log of rollouts and the registry's history say of each other, and figures of many times. Pure."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

FAULTS = (
    "double_moves",
    "unmade_moves",
    "unrecorded_moves",
    "unintended_moves",
    "broken_revisions",
    "wrong_outcomes",
    "wrong_ends",
    "unlike_verdicts",
)
OURS = "rollout "
"""What the actor of a rollout's move begins with."""


class Entry(NamedTuple):
    """An entry of a rollout's log: its JSON, the digest of the record's value, and when it was read (monotonic seconds)."""

    value: dict[str, Any]
    digest: str
    read: float


def made(history: Sequence[Mapping[str, Any]], current: str) -> list[bool]:
    """For each entry of a channel's history, oldest first, whether the channel was moved by it. One that was broken off has
    left its entry and no more. `current` is the digest that the channel names now."""
    then = [*(move["from"] for move in history[1:]), current]
    return [move["to"] == digest for move, digest in zip(history, then, strict=True)]


def move_faults(
    logs: Mapping[str, Sequence[Entry]], history: Sequence[Mapping[str, Any]], current: str
) -> tuple[Counter[str], int]:
    """The faults of all moves, and how many moves were broken off and made again.

    A move that nobody recorded because a person's came after it is no fault: the rollout ends overtaken.
    """
    found = Counter(dict.fromkeys(FAULTS, 0))
    intents = {entry.digest: name for name, log in logs.items() for entry in log if entry.value["kind"] == "intended"}
    moved = {name: [e.value["revision"] for e in log if e.value["kind"] == "moved"] for name, log in logs.items()}
    outcomes = {name: log[-1].value.get("outcome") for name, log in logs.items() if log}
    done = made(history, current)
    times = Counter(move["evidence"] for move, was in zip(history, done, strict=True) if was)
    entries = Counter(move["evidence"] for move in history if move["evidence"] is not None)
    found["double_moves"] = sum(times[digest] - 1 for digest in intents if times[digest] > 1)
    found["broken_revisions"] = sum(move["revision"] != number for number, move in enumerate(history, 1))
    by_revision = {move["revision"]: (move, was) for move, was in zip(history, done, strict=True)}
    for name, revisions in moved.items():
        for revision in revisions:
            move, was = by_revision.get(revision, ({"evidence": None}, False))
            found["unmade_moves"] += not was or intents.get(move["evidence"] or "") != name
    for move, was in by_revision.values():
        owner = intents.get(move["evidence"] or "")
        if move["actor"].startswith(OURS) or move["evidence"] is not None:
            found["unintended_moves"] += owner is None or move["actor"] != OURS + owner
        if was and owner is not None and outcomes.get(owner) != "overtaken":
            found["unrecorded_moves"] += move["revision"] not in moved[owner]
    return found, sum(entries[digest] - times[digest] for digest in intents)


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that a `share` of all are at or below. None where there are no values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Median, 99th percentile and most of these values, and how many there are."""
    told = {"p50": percentile(values, 0.5), "p99": percentile(values, 0.99), "max": max(values, default=None)}
    return {"count": len(values), **{name: None if value is None else round(value, 3) for name, value in told.items()}}


def asked_after(asked: Mapping[int, int], opened: Sequence[int]) -> int:
    """How many events a candidate was asked for after the breaker had opened. `asked` counts events by the time of their
    answers, `opened` are the times at which one scorer said that it leaves the candidate alone; all in ms."""
    off = min((at for at in opened if at >= min(asked, default=0)), default=None)
    return 0 if off is None else sum(count for at, count in asked.items() if at > off)
