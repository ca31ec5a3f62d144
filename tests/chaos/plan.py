"""A step of a round's plan, and the parts of a plan that all campaigns share."""

import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Step:
    """One action on the stage. `at`: seconds after the load began."""

    at: float
    verb: str
    argument: str = ""


@dataclass(frozen=True)
class Round:
    """One round. `seconds` is how long the load is written."""

    number: int
    seed: int
    faults: tuple[str, ...]
    seconds: float
    steps: tuple[Step, ...]


def around(calls: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{when}:{call}" for call in calls for when in ("before", "after"))


def cuts(rng: random.Random, at: float, times: int, longest: float, side: str = "") -> list[Step]:
    return [Step(at + rng.uniform(0.2, longest) * k, "cut", side) for k in range(times)]


def slowed(rng: random.Random, at: float, side: str = "") -> list[Step]:
    delay = f"{side} {rng.uniform(0.02, 0.3):.3f}".strip()
    return [Step(at, "slow", delay), Step(at + rng.uniform(2, 5), "slow", f"{side} 0".strip())]


def half_open(rng: random.Random, at: float, side: str = "") -> list[Step]:
    """Block all data on the connections, then cut them."""
    return [Step(at, "hold", side), Step(at + rng.uniform(1, 8), "cut", side)]


def late_endtxn(at: float) -> list[Step]:
    """Hold four EndTxn requests, one after another, and deliver them late."""
    return [Step(at + 1.5 * k, "hold-endtxn") for k in range(4)]
