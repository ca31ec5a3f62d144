"""The steps of a round: a pure function of a seed, so that any round can be repeated.

A fault is a few steps of the stage (`stage.py`) at seconds after the load began. Nothing here touches a process.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.chaos.plan import Round, Step, around, cuts, half_open, late_endtxn, slowed

CALLS = ("init_transactions", "begin_transaction", "produce", "flush", "commit_transaction")
POINTS = (*around(CALLS), "during:commit_transaction")
"""Every step of a lane's transaction, with the crash before it, after it, and a moment after the commit was sent."""
SIDES = ("source", "destination")
EXCLUSIVE = (
    frozenset({"kill-source", "freeze-source", "add-partitions"}),
    frozenset({"kill-destination", "freeze-destination"}),
    frozenset({"kill-relay", "freeze-relay", "take-over", "roll"}),
)
"""A round has at most one fault of each group: a broker has one fault at a time, and must run to add partitions."""
GROWN = 2  # partitions added each time


@dataclass(frozen=True)
class RelayRound(Round):
    """One round. `transactional`: half of the records are written in transactions, many of them aborted."""

    lanes: int
    transaction_records: int
    partitions: int
    transactional: bool

    @property
    def taken_over(self) -> bool:
        """Whether the first process of the round must be fenced and end."""
        return "take-over" in self.faults


Planner = Callable[[random.Random, float], list[Step]]
"""(random numbers, second of the beginning) to steps."""


def _kill_relay(rng: random.Random, at: float) -> list[Step]:
    """Crash three times, each at a point of a transaction or at any time, by chance."""
    steps = []
    for k in range(3):
        order = Step(at + 2.5 * k, "arm", rng.choice(POINTS)) if rng.random() < 0.8 else Step(at + 2.5 * k, "kill-relay")
        steps.append(order)
    return steps


def _take_over(rng: random.Random, at: float) -> list[Step]:
    """Start a second process with the same name; the first may be frozen and thawed later. It must end by itself."""
    second = Step(at + 0.5, "take-over")
    if rng.random() < 0.3:
        return [second]
    return [Step(at, "freeze-relay"), second, Step(at + rng.uniform(1, 8), "thaw-relay")]


def _roll(rng: random.Random, at: float) -> list[Step]:
    """SIGTERM and a restart, each time with another number of lanes."""
    return [Step(at + 2.5 * k, "restart-relay", str(rng.randint(1, 6))) for k in range(3)]


def _begin_and_end(verb: str, undo: str, minimum: float, maximum: float, side: str = "") -> Planner:
    return lambda rng, at: [Step(at, verb, side), Step(at + rng.uniform(minimum, maximum), undo, side)]


def _of_sides(name: str, planner: Callable[[str], Planner]) -> dict[str, Planner]:
    return {f"{name}-{side}": planner(side) for side in SIDES}


PLANNERS: dict[str, Planner] = {
    "kill-relay": _kill_relay,
    "freeze-relay": _begin_and_end("freeze-relay", "thaw-relay", 0.5, 8),
    "take-over": _take_over,
    "roll": _roll,
    "add-partitions": _begin_and_end("add-partitions", "add-partitions", 0.5, 4),
    "late-endtxn": lambda _, at: late_endtxn(at),
    **_of_sides("kill", lambda side: _begin_and_end("kill-broker", "start-broker", 0.5, 4, side)),
    **_of_sides("freeze", lambda side: _begin_and_end("freeze-broker", "thaw-broker", 1, 8, side)),
    **_of_sides("cut", lambda side: lambda rng, at: cuts(rng, at, 5, 1.2, side)),
    **_of_sides("slow", lambda side: lambda rng, at: slowed(rng, at, side)),
    **_of_sides("half-open", lambda side: lambda rng, at: half_open(rng, at, side)),
}
FAULTS = tuple(PLANNERS)


def plan(number: int, seed: int, seconds: float, only: str | None = None) -> RelayRound:
    """Return the round of this seed: one to three faults, or `only` this one, over `seconds` of load."""
    rng = random.Random(seed)
    faults = (only,) if only else _choose(rng)
    lanes, transaction_records, partitions = rng.choice((1, 2, 4)), rng.choice((200, 1_000, 4_000)), rng.choice((4, 6, 8))
    transactional = rng.random() < 0.5
    steps = [step for fault in faults for step in PLANNERS[fault](rng, rng.uniform(1.0, max(1.5, seconds * 0.4)))]
    return RelayRound(
        number, seed, faults, seconds, tuple(sorted(steps)), lanes, transaction_records, partitions, transactional
    )


def _choose(rng: random.Random) -> tuple[str, ...]:
    """Choose faults: most often a kill of the relay, and at most one of each group of EXCLUSIVE."""
    chosen: list[str] = []
    wanted = rng.choice((1, 1, 2, 3))
    first = ["kill-relay"] if rng.random() < 0.25 else []
    for fault in [*first, *rng.sample(FAULTS, len(FAULTS))]:
        clash = any(fault in group and group & set(chosen) for group in EXCLUSIVE)
        if len(chosen) < wanted and fault not in chosen and not clash:
            chosen.append(fault)
    return tuple(chosen)
