"""Whole rollouts, one after the other, while scorers, the shadow and the controllers are killed and restarted."""

import contextlib
import json
import random
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from publisher.audit.report import FAULTS as AUDITED
from tests.chaos.command import talk
from tests.chaos.rollouts.counting import move_faults
from tests.chaos.rollouts.ground import HALF, NOT_FINITE, RAISING, Ground, KeyedLoad, listens, scores
from tests.chaos.rollouts.plan import ABORT, BAD, CONTROLLER, FAILING, OUTCOMES, PERSON, SCORER, SHADOW, Kill, Round
from tests.chaos.supervised import Supervised
from tests.chaos.watch import Watch
from tests.support.waiting import until, within

PARTITIONS = 4
RATE = 1_000.0
MAX_WAIT_SECONDS = 240.0
NEWEST_FIRST = 0.75  # the share of controller kills that hit the leader
EXAMINED = "a sandbox process scores these events"  # logged by a scorer or shadow whose predecessor died with events in flight
ENDS = {0, -9, -15}


class Stage:
    """One channel with its scorers, shadow, controllers and load."""

    def __init__(self, bootstrap_servers: str, folder: Path, name: str, seed: int) -> None:
        self.ground = Ground(bootstrap_servers, folder / name, name, PARTITIONS, shadow={"max_lag_seconds": 600})
        self._chance = random.Random(f"{seed} {name}")
        self._slots: dict[str, list[Supervised]] = {
            SCORER: [self.ground.scorer(replica) for replica in ("a", "b")],
            SHADOW: [self.ground.shadow()],
            CONTROLLER: [self.ground.controller(replica) for replica in ("c", "d")],
        }
        self._load = KeyedLoad(self.ground.rig, RATE)
        self._watch = Watch(bootstrap_servers, self.ground.rig.scores_topic, self.ground.rig.dead_topic)
        self.kills: Counter[str] = Counter()
        self.expected: dict[str, str] = {}
        self.results: list[dict[str, Any]] = []

    @property
    def _all(self) -> list[Supervised]:
        return [slot for slots in self._slots.values() for slot in slots]

    @property
    def exits(self) -> list[int]:
        return [code for slot in self._all for code in slot.exits]

    def play(self, rounds: Sequence[Round]) -> None:
        """Play the rounds. Raises AssertionError, RuntimeError after a timeout."""
        self._watch.start()
        for slot in self._all:
            slot.start()
        workers = [*self._slots[SCORER], *self._slots[SHADOW]]
        until(lambda: self._tended() and all(map(scores, workers)), "the partitions of all scorers")
        until(lambda: self._tended() and all(map(listens, self._slots[CONTROLLER])), "the controllers")
        self._load.start()
        for round_ in rounds:
            while not self._play(round_):
                pass  # the rollout ended before the first kill: repeat it
        self._load.finish()
        until(lambda: self._tended() and self._watch.seen >= self._load.events, "all answers", MAX_WAIT_SECONDS)
        for slot in self._all:
            slot.end()

    def counted(self) -> dict[str, Any]:
        """Return the results of all counts."""
        rig, log = self.ground.rig, self.ground.log
        log.poll(1.0)
        faults, broken_off = move_faults(log.entries, self.ground.history(), self.ground.current())
        faults["wrong_outcomes"] = sum(log.outcome(name) != wanted for name, wanted in self.expected.items())
        verified = [self._verified(name, entry.value["seq"]) for name, entry in self._judged()]
        faults["unlike_verdicts"] = verified.count(False)
        audit = json.loads(rig.run("scorer", "audit", str(rig.path), "--json", code=None).stdout)
        second = rig.audit()
        faults["events_not_counted"] = abs(audit["events"] - self._load.events) + abs(second["inputs"] - self._load.events)
        faults["dead_lettered"] = audit["dead_lettered"]
        faults["wrong_ends"] = sum(code not in ENDS for code in self.exits)
        return {
            "events": audit["events"],
            "moves": len(self.ground.history()),
            "broken_off": broken_off,
            "verified": len(verified),
            "faults": {
                "rollouts": dict(faults),
                "scorer audit": {name: audit[name] for name in AUDITED if name in audit},
                "second auditor": {name: count for name, count in second.items() if name != "inputs"},
            },
        }

    def close(self) -> None:
        for slot in self._all:
            slot.end()
        self._watch.close()
        self.ground.close()

    def _play(self, round_: Round) -> bool:
        """Play a round; return whether a process was killed before the rollout ended."""
        ground, began, kills = self.ground, time.monotonic(), Counter(self.kills)
        name = ground.begin(self._candidate(round_), round_.steps)
        started, pending, person = time.monotonic(), deque(round_.kills), self._person(round_)
        while (outcome := ground.log.outcome(name)) is None:
            now = time.monotonic()
            if now > started + MAX_WAIT_SECONDS:
                status = ground.rig.run("scorer", "rollout", "status", str(ground.rig.path)).stdout
                raise RuntimeError(f"round {round_.number} ({round_.kind}) does not end: {status}")
            if pending and now - started >= pending[0].at and self._killed(pending[0]):
                pending.popleft()
            if person is not None and len(ground.log.of(name, "moved")) > round_.acts_at:
                person()
                person = None
            self._tended()
            ground.log.poll()
        self.expected[name] = OUTCOMES[round_.kind]
        if outcome == "completed":
            ground.champion = self._candidate(round_)
        report = {
            "round": round_.number,
            "kind": round_.kind,
            "rollout": name,
            "outcome": outcome,
            "kills": dict(self.kills - kills),
            "seconds": round(time.monotonic() - began, 1),
        }
        self.results.append(report)
        talk.print(f"{ground.rig.name}: {json.dumps(report)}", markup=False)
        return bool(report["kills"])

    def _candidate(self, round_: Round) -> str:
        if round_.kind == BAD:
            return HALF
        if round_.kind == FAILING:
            return (NOT_FINITE, RAISING)[round_.variant]
        return self.ground.twin

    def _person(self, round_: Round) -> Callable[[], None] | None:
        """Return the action of a person in this round, if there is one."""
        if round_.kind == ABORT:
            return lambda: self.ground.ask("abort")
        return (lambda: self._promote(round_.variant)) if round_.kind == PERSON else None

    def _promote(self, variant: int) -> None:
        """Move the channel as a person, to the champion alone or to its twin."""
        ground = self.ground
        to = (ground.champion, ground.twin)[variant]
        ground.rig.run("scorer", "promote", str(ground.rig.path), "--to", to, "--reason", "a person's")
        ground.champion = to

    def _killed(self, kill: Kill) -> bool:
        """Kill a working process of this kind, if there is one; it is restarted."""
        works = listens if kill.whom == CONTROLLER else scores
        if not (working := [slot for slot in self._slots[kill.whom] if works(slot)]):
            return False
        chosen = self._chance.choice(working)
        if kill.whom == CONTROLLER and self._chance.random() < NEWEST_FIRST:
            newest = self.ground.log.writers[-1][0] if self.ground.log.writers else ""
            chosen = next((slot for slot in working if newest.endswith(slot.command[-3].removeprefix("replica="))), chosen)
        chosen.send(signal.SIGKILL)
        until(lambda: not chosen.running, "the end of the killed process", every=0.01)
        self.kills[kill.whom] += 1
        return True

    def _tended(self) -> bool:
        for slot in self._all:
            slot.tend(time.monotonic())
        return True

    def deaths_in_flight(self) -> int:
        """Count the processes that died with events in flight: no such death may count against a good candidate."""
        return sum(slot.log_text().count(EXAMINED) for slot in (*self._slots[SCORER], *self._slots[SHADOW]))

    def _judged(self) -> list[tuple[str, Any]]:
        return [(name, entry) for name, log in self.ground.log.entries.items() for entry in log if entry.value.get("judgement")]

    def _verified(self, rollout: str, seq: int) -> bool:
        rig = self.ground.rig
        completed = rig.run("scorer", "rollout", "verify", str(rig.path), str(seq), "--rollout", rollout, "--json", code=None)
        if completed.returncode:
            talk.print(
                f"verify {seq} of {rollout} ends with {completed.returncode}: {completed.stdout}{completed.stderr}",
                markup=False,
            )
        return completed.returncode == 0


def campaign(bootstrap_servers: str, folder: Path, rounds: Sequence[Round], seed: int, lanes: int) -> dict[str, Any]:
    """Play the rounds on so many channels at once; and return the figures. Raises RuntimeError if a lane does not end."""
    with contextlib.ExitStack() as undo:
        stages = [Stage(bootstrap_servers, folder, f"rounds-{lane}", seed) for lane in range(min(lanes, len(rounds)))]
        for stage in stages:
            undo.callback(stage.close)
        in_parallel([partial(stage.play, rounds[lane :: len(stages)]) for lane, stage in enumerate(stages)])
        counts = [stage.counted() for stage in stages]
        results = sorted((result for stage in stages for result in stage.results), key=lambda result: result["round"])
        faults: dict[str, Counter[str]] = {}
        for count in counts:
            for name, part_faults in count["faults"].items():
                faults.setdefault(name, Counter()).update(part_faults)
        deaths = sum(stage.deaths_in_flight() for stage in stages)
        kills = sum((stage.kills for stage in stages), Counter[str]())
        exits = Counter(code for stage in stages for code in stage.exits)
    return {
        "rounds": sum(bool(result["kills"]) for result in results),
        "rounds_without_kills": sum(not result["kills"] for result in results),
        "outcomes": dict(Counter(f"{result['kind']}: {result['outcome']}" for result in results)),
        "kills": dict(kills),
        "deaths_in_flight": deaths,
        **{name: sum(count[name] for count in counts) for name in ("events", "moves", "broken_off", "verified")},
        "exits": {str(code): count for code, count in sorted(exits.items())},
        "faults": {name: dict(part_faults) for name, part_faults in faults.items()},
        "longest_round_seconds": max(result["seconds"] for result in results),
    }


def in_parallel(works: Sequence[Callable[[], None]]) -> None:
    """Run all functions at once. Raises the first exception of them."""
    failed: list[BaseException] = []

    def attempt(work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - raised below
            failed.append(error)

    threads = [threading.Thread(target=attempt, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) and not failed:
        within(lambda: failed or not any(thread.is_alive() for thread in threads), 1.0)
    if failed:
        raise failed[0]
