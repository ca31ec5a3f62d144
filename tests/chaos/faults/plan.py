"""The steps of a round: a pure function of a seed, so that any round can be repeated.

A fault is a few steps of the stage (`stage.py`) at seconds after the load began. Nothing here touches a process.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.chaos.plan import Round, Step, around, cuts, half_open, late_endtxn, slowed
from tests.chaos.supervised import RESTART_SECONDS

SESSION_SECONDS = 6.0  # the scorers' session timeout
FOREIGN_SECONDS = 40.0  # past the scorers' transaction timeout and the broker's sweep
STEPS = ("begin_transaction", "produce", "send_offsets_to_transaction", "commit_transaction")
POINTS = around(STEPS)
"""Every step of the transaction session, with the crash before it and after it."""
PROXY_FAULTS = frozenset({"cut", "slow", "half-open", "late-endtxn"})
CLUSTER_FAULTS = frozenset({"move-coordinator"})  # on one node there is no other coordinator
BROKER_FAULTS = frozenset({"kill-broker", "freeze-broker", "move-coordinator", "disk-full"})  # one of these at a time


@dataclass(frozen=True)
class ScorerRound(Round):
    """One round. `protocol` is that of the consumer group."""

    protocol: str
    scorers: int

    @property
    def proxied(self) -> bool:
        """Whether scorers reach the brokers through the proxies."""
        return bool(PROXY_FAULTS & set(self.faults))


@dataclass(frozen=True)
class Dice:
    """The inputs of the plan of a fault: random numbers, its first second, the numbers of scorers and brokers."""

    rng: random.Random
    at: float
    scorers: int
    brokers: int

    def scorer(self) -> str:
        return str(self.rng.randrange(self.scorers))

    def broker(self) -> str:
        return str(self.rng.randrange(self.brokers))

    def later(self, minimum: float, maximum: float) -> float:
        return self.at + self.rng.uniform(minimum, maximum)


def _kill_scorer(dice: Dice) -> list[Step]:
    """Kill a scorer at a point of the session or at any time, by chance."""
    victim = dice.scorer()
    if dice.rng.random() < 0.7:
        return [Step(dice.at, "arm", f"{victim} {dice.rng.choice(POINTS)}")]
    return [Step(dice.at, "kill-scorer", victim)]


def _freeze_scorer(dice: Dice) -> list[Step]:
    victim = dice.scorer()
    return [
        Step(dice.at, "freeze-scorer", victim),
        Step(dice.later(SESSION_SECONDS + 1, SESSION_SECONDS + 4), "thaw-scorer", victim),
    ]


def _churn(dice: Dice) -> list[Step]:
    victim = dice.scorer()
    return [Step(dice.at + 2.5 * k, verb, victim) for k, verb in enumerate(("stop-scorer", "start-scorer") * 2)]


def _kill_broker(dice: Dice) -> list[Step]:
    node = dice.broker()
    return [Step(dice.at, "kill-broker", node), Step(dice.later(0.5, 4), "start-broker", node)]


def _freeze_broker(dice: Dice) -> list[Step]:
    node, max_seconds = dice.broker(), 5 if dice.brokers > 1 else 3  # if it is the only broker: before its session expires
    return [Step(dice.at, "freeze-broker", node), Step(dice.later(1, max_seconds), "thaw-broker", node)]


def _move_coordinator(dice: Dice) -> list[Step]:
    topic = dice.rng.choice(("__consumer_offsets", "__transaction_state"))
    return [Step(dice.at, "kill-leader", topic), Step(dice.later(3, 6), "start-broker", "killed")]


def _clock(dice: Dice) -> list[Step]:
    victim, hours = dice.scorer(), dice.rng.choice((-48, -1, 1, 48))
    return [Step(dice.at, "restart-with-clock", f"{victim} {hours:+d}")]


def _swap(dice: Dice) -> list[Step]:
    """Swap twice; kill or restart a scorer while some scorers have flipped and others have not."""
    verb, soon = dice.rng.choice(("kill-scorer", "restart-scorer")), dice.later(0, 0.4)
    return [Step(dice.at, "swap"), Step(soon, verb, dice.scorer()), Step(dice.later(3, 6), "swap")]


def _registry_down(dice: Dice) -> list[Step]:
    restart = Step(dice.at + 1, "restart-scorer", dice.scorer())
    return [Step(dice.at, "registry-away"), restart, Step(dice.later(5, 7), "registry-back")]


def _twins(dice: Dice) -> list[Step]:
    """Start a second process of a replica for some seconds: beside the first, or with the successor of a killed one."""
    victim = dice.scorer()
    if dice.rng.random() < 0.5:
        return [Step(dice.at, "start-twin", victim), Step(dice.later(3, 14), "stop-twins")]
    together = [Step(dice.at, "kill-scorer", victim), Step(dice.at + RESTART_SECONDS, "start-twin", victim)]
    return [*together, Step(dice.later(SESSION_SECONDS + 5, SESSION_SECONDS + 10), "stop-twins")]


def _foreign_transaction(dice: Dice) -> list[Step]:
    """Open a foreign transaction on the output topic for longer than a scorer may; a scorer restarts in that time."""
    killed = Step(dice.at + 1, "kill-scorer", dice.scorer())
    return [Step(dice.at, "begin-foreign"), killed, Step(dice.later(12, FOREIGN_SECONDS), "end-foreign")]


def _add_partitions(dice: Dice) -> list[Step]:
    times = range(dice.rng.randint(1, 2))
    return [Step(dice.at + 2.0 * k, "add-partitions", str(dice.rng.randint(1, 3))) for k in times]


def _bad_version(dice: Dice, kind: str) -> list[Step]:
    """Promote a version that must be refused, kill one scorer and restart another, then promote a good version."""
    killed = Step(dice.later(0.2, 1.5), "kill-scorer", dice.scorer())
    restarted = Step(dice.later(2, 4), "restart-scorer", dice.scorer())
    return [Step(dice.at, "promote-bad", kind), killed, restarted, Step(dice.later(8, 12), "swap")]


def _aborted_transactions(dice: Dice) -> list[Step]:
    """Abort transactions on the input topic, delete the scored records, and restart a scorer behind the last marker."""
    deleted = dice.later(3, 5)
    return [
        Step(dice.at, "abort-transactions", f"{dice.rng.choice((2, 20, 200))}"),
        Step(deleted, "delete-scored"),
        Step(deleted + 0.1, dice.rng.choice(("kill-scorer", "restart-scorer")), dice.scorer()),
    ]


def _flood_connections(dice: Dice) -> list[Step]:
    victim = dice.scorer()
    return [Step(dice.at, "flood-connections", victim), Step(dice.later(4, 8), "end-flood")]


PLANNERS: dict[str, Callable[[Dice], list[Step]]] = {
    "kill-scorer": _kill_scorer,
    "freeze-scorer": _freeze_scorer,
    "roll": lambda dice: [Step(dice.at + 5.0 * k, "restart-scorer", str(k)) for k in range(dice.scorers)],
    "churn": _churn,
    "kill-broker": _kill_broker,
    "freeze-broker": _freeze_broker,
    "move-coordinator": _move_coordinator,
    "cut": lambda dice: cuts(dice.rng, dice.at, 4, 1.5),
    "slow": lambda dice: slowed(dice.rng, dice.at),
    "half-open": lambda dice: half_open(dice.rng, dice.at),
    "late-endtxn": lambda dice: late_endtxn(dice.at),
    "disk-full": lambda dice: [Step(dice.at, "fill-disk"), Step(dice.later(3, 8), "free-disk")],
    "clock": _clock,
    "poison": lambda dice: [Step(0.0, "poison", f"{dice.rng.choice((0.001, 0.02, 0.2)):g}")],
    "swap": _swap,
    "registry-down": _registry_down,
    "twins": _twins,
    "foreign-transaction": _foreign_transaction,
    "add-partitions": _add_partitions,
    "recreate-topic": lambda dice: [Step(dice.at, "make-again")],
    "lethal-version": lambda dice: _bad_version(dice, "lethal"),
    "refused-version": lambda dice: _bad_version(dice, "refused"),
    "aborted-transactions": _aborted_transactions,
    "flood-connections": _flood_connections,
    "bomb": lambda dice: [Step(dice.at, "bomb", dice.rng.choice(("gzip", "lz4", "zstd")))],
}
FAULTS = tuple(PLANNERS)


def plan(number: int, seed: int, possible: Sequence[str], brokers: int, seconds: float, only: str | None = None) -> ScorerRound:
    """Return the round of this seed: one to three of the `possible` faults, or `only` this one, over `seconds` of load."""
    rng = random.Random(seed)
    faults = (only,) if only else _choose(rng, possible)
    scorers, protocol = rng.choice((2, 2, 3)), rng.choice(("classic", "consumer"))
    steps: list[Step] = []
    for fault in faults:
        latest = max(2.5, seconds * 0.6)
        steps += PLANNERS[fault](Dice(rng, rng.uniform(2.0, latest), scorers, brokers))
    return ScorerRound(number, seed, faults, seconds, tuple(sorted(steps)), protocol, scorers)


def _choose(rng: random.Random, possible: Sequence[str]) -> tuple[str, ...]:
    """Choose different faults, at most one of a broker: the product need not survive two of three nodes down."""
    chosen: list[str] = []
    for fault in rng.sample(list(possible), min(rng.choice((1, 1, 2, 3)), len(possible))):
        if fault not in BROKER_FAULTS or not BROKER_FAULTS & set(chosen):
            chosen.append(fault)
    return tuple(chosen)


def possible_faults(brokers: int, missing: Sequence[str] = ()) -> list[str]:
    return [f for f in FAULTS if f not in missing and not (brokers == 1 and f in CLUSTER_FAULTS)]
