"""What happens in a round, and when: a pure function of a seed, so that any round can be played again.

A fault is a few steps of the stage (`stage.py`) at seconds after the load began. Nothing here touches a process.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.campaigns.plan import Round, Step, around, cuts, late_endtxn
from tests.campaigns.supervised import RESTART_SECONDS

SESSION_SECONDS = 6.0  # the scorers' session timeout
FOREIGN_SECONDS = 40.0  # past the scorers' transaction timeout and the broker's sweep
STEPS = ("begin_transaction", "produce", "send_offsets_to_transaction", "commit_transaction")
POINTS = around(STEPS)
"""Every step of the transaction session, with the crash before it and after it."""
PROXY_FAULTS = frozenset({"cut", "slow", "half-open", "late-endtxn"})
CLUSTER_FAULTS = frozenset({"move-coordinator"})  # nobody else could take over on one node
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


Planner = Callable[[random.Random, float, int, int], list[Step]]
"""(random numbers, second of the beginning, scorers, brokers) to steps."""


def _kill_scorer(rng: random.Random, at: float, scorers: int, _: int) -> list[Step]:
    """At a point of the session where the dice say so, else anywhere."""
    victim = str(rng.randrange(scorers))
    if rng.random() < 0.7:
        return [Step(at, "arm", f"{victim} {rng.choice(POINTS)}")]
    return [Step(at, "kill-scorer", victim)]


def _freeze_scorer(rng: random.Random, at: float, scorers: int, _: int) -> list[Step]:
    victim = str(rng.randrange(scorers))
    return [Step(at, "freeze-scorer", victim), Step(at + SESSION_SECONDS + rng.uniform(1, 4), "thaw-scorer", victim)]


def _roll(_: random.Random, at: float, scorers: int, __: int) -> list[Step]:
    return [Step(at + 5.0 * k, "restart-scorer", str(k)) for k in range(scorers)]


def _churn(rng: random.Random, at: float, scorers: int, _: int) -> list[Step]:
    victim = str(rng.randrange(scorers))
    verbs = ("stop-scorer", "start-scorer") * 2
    return [Step(at + 2.5 * k, verb, victim) for k, verb in enumerate(verbs)]


def _kill_broker(rng: random.Random, at: float, _: int, brokers: int) -> list[Step]:
    node = str(rng.randrange(brokers))
    return [Step(at, "kill-broker", node), Step(at + rng.uniform(0.5, 4), "start-broker", node)]


def _freeze_broker(rng: random.Random, at: float, _: int, brokers: int) -> list[Step]:
    node, most = str(rng.randrange(brokers)), 5 if brokers > 1 else 3  # before its session is over, where it is alone
    return [Step(at, "freeze-broker", node), Step(at + rng.uniform(1, most), "thaw-broker", node)]


def _move_coordinator(rng: random.Random, at: float, _: int, __: int) -> list[Step]:
    topic = rng.choice(("__consumer_offsets", "__transaction_state"))
    return [Step(at, "kill-leader", topic), Step(at + rng.uniform(3, 6), "start-broker", "killed")]


def _cut(rng: random.Random, at: float, _: int, __: int) -> list[Step]:
    return cuts(rng, at, 4, 1.5)


def _slow(rng: random.Random, at: float, _: int, __: int) -> list[Step]:
    return [Step(at, "slow", f"{rng.uniform(0.02, 0.3):.3f}"), Step(at + rng.uniform(2, 5), "slow", "0")]


def _half_open(rng: random.Random, at: float, _: int, __: int) -> list[Step]:
    return [Step(at, "hold"), Step(at + rng.uniform(1, 8), "cut")]


def _late_endtxn(_: random.Random, at: float, __: int, ___: int) -> list[Step]:
    return late_endtxn(at)


def _disk_full(rng: random.Random, at: float, _: int, __: int) -> list[Step]:
    return [Step(at, "fill-disk"), Step(at + rng.uniform(3, 8), "free-disk")]


def _clock(rng: random.Random, at: float, scorers: int, _: int) -> list[Step]:
    victim, hours = rng.randrange(scorers), rng.choice((-48, -1, 1, 48))
    return [Step(at, "restart-with-clock", f"{victim} {hours:+d}")]


def _poison(rng: random.Random, _: float, __: int, ___: int) -> list[Step]:
    return [Step(0.0, "poison", f"{rng.choice((0.001, 0.02, 0.2)):g}")]


def _swap(rng: random.Random, at: float, scorers: int, _: int) -> list[Step]:
    """Two swaps; a scorer is killed, or one leaves, while some have flipped and others have not."""
    verb, soon = rng.choice(("kill-scorer", "restart-scorer")), rng.uniform(0, 0.4)
    return [Step(at, "swap"), Step(at + soon, verb, str(rng.randrange(scorers))), Step(at + rng.uniform(3, 6), "swap")]


def _registry_down(rng: random.Random, at: float, scorers: int, _: int) -> list[Step]:
    victim = str(rng.randrange(scorers))
    return [Step(at, "registry-away"), Step(at + 1, "restart-scorer", victim), Step(at + rng.uniform(5, 7), "registry-back")]


def _twins(rng: random.Random, at: float, scorers: int, _: int) -> list[Step]:
    """A second process of a replica for some seconds: beside the first, or at once with a killed one's successor."""
    victim = str(rng.randrange(scorers))
    if rng.random() < 0.5:
        return [Step(at, "start-twin", victim), Step(at + rng.uniform(3, 14), "stop-twins")]
    together = [Step(at, "kill-scorer", victim), Step(at + RESTART_SECONDS, "start-twin", victim)]
    return [*together, Step(at + SESSION_SECONDS + rng.uniform(5, 10), "stop-twins")]


def _foreign_transaction(rng: random.Random, at: float, scorers: int, _: int) -> list[Step]:
    """Somebody else's transaction on the output topic, open for longer than any of ours may be; a scorer begins meanwhile."""
    victim, seconds = str(rng.randrange(scorers)), rng.uniform(12, FOREIGN_SECONDS)
    return [Step(at, "begin-foreign"), Step(at + 1, "kill-scorer", victim), Step(at + seconds, "end-foreign")]


def _add_partitions(rng: random.Random, at: float, _: int, __: int) -> list[Step]:
    """Once, or twice in a row."""
    return [Step(at + 2.0 * k, "add-partitions", str(rng.randint(1, 3))) for k in range(rng.randint(1, 2))]


def _recreate_topic(_: random.Random, at: float, __: int, ___: int) -> list[Step]:
    return [Step(at, "make-again")]


PLANNERS: dict[str, Planner] = {
    "kill-scorer": _kill_scorer,
    "freeze-scorer": _freeze_scorer,
    "roll": _roll,
    "churn": _churn,
    "kill-broker": _kill_broker,
    "freeze-broker": _freeze_broker,
    "move-coordinator": _move_coordinator,
    "cut": _cut,
    "slow": _slow,
    "half-open": _half_open,
    "late-endtxn": _late_endtxn,
    "disk-full": _disk_full,
    "clock": _clock,
    "poison": _poison,
    "swap": _swap,
    "registry-down": _registry_down,
    "twins": _twins,
    "foreign-transaction": _foreign_transaction,
    "add-partitions": _add_partitions,
    "recreate-topic": _recreate_topic,
}
FAULTS = tuple(PLANNERS)


def plan(number: int, seed: int, possible: Sequence[str], brokers: int, seconds: float, only: str | None = None) -> ScorerRound:
    """The round of this seed: one to three of the `possible` faults, or `only` this one, over `seconds` of load."""
    rng = random.Random(seed)
    faults = (only,) if only else _choose(rng, possible)
    scorers, protocol = rng.choice((2, 2, 3)), rng.choice(("classic", "consumer"))
    steps: list[Step] = []
    for fault in faults:
        latest = max(2.5, seconds * 0.6)
        steps += PLANNERS[fault](rng, rng.uniform(2.0, latest), scorers, brokers)
    return ScorerRound(number, seed, faults, seconds, tuple(sorted(steps)), protocol, scorers)


def _choose(rng: random.Random, possible: Sequence[str]) -> tuple[str, ...]:
    """Different faults, at most one of them to a broker: two of three nodes down is no fault of ours."""
    chosen: list[str] = []
    for fault in rng.sample(list(possible), min(rng.choice((1, 1, 2, 3)), len(possible))):
        if fault not in BROKER_FAULTS or not BROKER_FAULTS & set(chosen):
            chosen.append(fault)
    return tuple(chosen)


def possible_faults(brokers: int, missing: Sequence[str] = ()) -> list[str]:
    """What can be done with this number of brokers on this machine."""
    return [f for f in FAULTS if f not in missing and not (brokers == 1 and f in CLUSTER_FAULTS)]
