"""Compare the log of rollouts with the history of the registry, and summarize measured times. Pure."""

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
"""The beginning of the actor of a rollout's move."""


class Entry(NamedTuple):
    """An entry of a rollout's log: its JSON, the digest of the record's value, and when it was read (monotonic seconds)."""

    value: dict[str, Any]
    digest: str
    read: float


def made(history: Sequence[Mapping[str, Any]], current: str) -> list[bool]:
    """Return, for each entry of a channel's history, oldest first, whether it moved the channel. An interrupted move has
    left only its entry. `current` is the digest that the channel names now."""
    then = [*(move["from"] for move in history[1:]), current]
    return [move["to"] == digest for move, digest in zip(history, then, strict=True)]


def move_faults(
    logs: Mapping[str, Sequence[Entry]], history: Sequence[Mapping[str, Any]], current: str
) -> tuple[Counter[str], int]:
    """Return the faults of all moves, and the number of moves that were interrupted and repeated.

    An unrecorded move that was followed by the move of a person is no fault: the rollout ends overtaken.
    """
    faults = Counter(dict.fromkeys(FAULTS, 0))
    intents = {entry.digest: name for name, log in logs.items() for entry in log if entry.value["kind"] == "intended"}
    moved = {name: [e.value["revision"] for e in log if e.value["kind"] == "moved"] for name, log in logs.items()}
    outcomes = {name: log[-1].value.get("outcome") for name, log in logs.items() if log}
    applied = made(history, current)
    times = Counter(move["evidence"] for move, was_applied in zip(history, applied, strict=True) if was_applied)
    entries = Counter(move["evidence"] for move in history if move["evidence"] is not None)
    faults["double_moves"] = sum(times[digest] - 1 for digest in intents if times[digest] > 1)
    faults["broken_revisions"] = sum(move["revision"] != number for number, move in enumerate(history, 1))
    by_revision = {move["revision"]: (move, was_applied) for move, was_applied in zip(history, applied, strict=True)}
    for name, revisions in moved.items():
        for revision in revisions:
            move, was_applied = by_revision.get(revision, ({"evidence": None}, False))
            faults["unmade_moves"] += not was_applied or intents.get(move["evidence"] or "") != name
    for move, was_applied in by_revision.values():
        owner = intents.get(move["evidence"] or "")
        if move["actor"].startswith(OURS) or move["evidence"] is not None:
            faults["unintended_moves"] += owner is None or move["actor"] != OURS + owner
        if was_applied and owner is not None and outcomes.get(owner) != "overtaken":
            faults["unrecorded_moves"] += move["revision"] not in moved[owner]
    return faults, sum(entries[digest] - times[digest] for digest in intents)


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return the smallest value that is not below a `share` of all values. None without values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Return the median, 99th percentile, maximum and number of the values."""
    figures = {"p50": percentile(values, 0.5), "p99": percentile(values, 0.99), "max": max(values, default=None)}
    return {"count": len(values), **{name: None if value is None else round(value, 3) for name, value in figures.items()}}


def asked_after(requests: Mapping[int, int], opened: Sequence[int]) -> int:
    """Count the events that were sent to a candidate after the breaker opened. `requests` counts events by the time of their
    answers, `opened` has the times at which a scorer logged that its breaker opened; all in ms."""
    off = min((at for at in opened if at >= min(requests, default=0)), default=None)
    return 0 if off is None else sum(count for at, count in requests.items() if at > off)
