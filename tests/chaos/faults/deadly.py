"""`python -m tests.chaos.faults.deadly`: events that kill, and kills by signal, on a real broker.

Three parts: single deadly events of every kind among others; ten in a row; and kills by signal at the worst moments: of a
worker with events in flight, of its examiner, of all processes at once. Exactly the deadly events must be dead-lettered, and no
event may be lost or duplicated. The campaign kills an examiner at most once between two answers: two kills in a row with the
same event in flight mark the event as deadly.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from scorer.crash_isolation.in_flight_journal import InFlightJournal, journal_path
from scorer.demo.broker.embedded import EmbeddedBroker
from tests.integration.scorer import lethal
from tests.integration.scorer.rig import Rig, ScorerProcess, events
from tests.support.waiting import within

KINDS: list[dict[str, Any]] = [{"a": lethal.SEGFAULT}, {"a": lethal.ABORT}, {"a": lethal.OUT_OF_MEMORY}, lethal.DECODER]
KAFKA = {"session_timeout_ms": 6_000, "transaction_timeout_ms": 10_000}
MAX_WAIT_SECONDS = 900.0  # the count reports events without answers after this time
SLOW_EVERY = 20
FAULTS = ("missing", "duplicates", "phantoms", "out_of_order")


@dataclass(frozen=True)
class Outcome:
    """One part. `dead_lettered` counts dead-lettered events; `deaths` is the largest number of dead workers of a scorer."""

    part: str
    events: int
    deadly: int
    dead_lettered: int
    wrongly_dead_lettered: int
    kills: int
    deaths: int
    seconds: float
    damage: dict[str, int]

    @property
    def clean(self) -> bool:
        """Whether exactly the deadly events were dead-lettered, and neither auditor found a fault."""
        return not self.wrongly_dead_lettered and self.dead_lettered == self.deadly and not self.damage


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.faults.deadly", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--events", type=int, default=50_000, help="of the first part")
    parser.add_argument("--kills", type=int, default=100, help="by hand")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    outcomes = []
    with EmbeddedBroker(quick_start=False) as broker, tempfile.TemporaryDirectory() as folder:
        parts: dict[str, Callable[[Rig], Outcome]] = {
            "one in ten thousand": lambda rig: deadly_events(rig, "one in ten thousand", options.events, 10_000),
            "ten in a row": lambda rig: deadly_events(rig, "ten in a row", 5_000, 0),
            "by hand": lambda rig: by_hand(rig, options.kills, random.Random(options.seed)),
        }
        for number, play in enumerate(parts.values()):
            rig = _rig(broker.bootstrap_servers, Path(folder) / str(number), f"deadly-{number}")
            with contextlib.closing(rig):
                outcomes.append(play(rig))
            print(_line(outcomes[-1]), file=sys.stderr, flush=True)
    print(json.dumps([asdict(outcome) for outcome in outcomes]))
    return 0 if all(outcome.clean for outcome in outcomes) else 1


def deadly_events(rig: Rig, part: str, count: int, every: int) -> Outcome:
    """Play deadly events among others, with two scorers; `every` 0: ten in a row."""
    numbers = range(every // 2, count, every) if every else range(count // 2, count // 2 + 10)
    deadly = {number: KINDS[at % len(KINDS)] for at, number in enumerate(numbers)}
    rig.emit({**event, **deadly.get(number, {})} for number, event in enumerate(events(count)))
    began = time.monotonic()
    scorers = [rig.start(replica) for replica in "ab"]
    within(lambda: rig.answered() >= count, MAX_WAIT_SECONDS)
    return _outcome(rig, part, count, {f"e{number}" for number in deadly}, 0, max(s.deaths for s in scorers), began)


def by_hand(rig: Rig, kills: int, chance: random.Random) -> Outcome:
    """Play slow events without deadly ones, and so many kills, each at the worst moment."""
    began, sent, killed, deaths = time.monotonic(), 0, 0, 0
    scorer = rig.start()
    answered_at_kill = -1
    while killed < kills:
        if sent - rig.answered() < 3 * SLOW_EVERY:
            flow = events(10 * SLOW_EVERY, start=sent)
            sent += rig.emit({**e, **({"a": lethal.SLOW} if n % SLOW_EVERY == 0 else {})} for n, e in enumerate(flow))
        victim = chance.choice(["worker", "examiner", "all"])
        if victim == "examiner":
            processes = examiners(scorer)
            if not processes or rig.answered() == answered_at_kill:
                continue
            answered_at_kill = rig.answered()
            with contextlib.suppress(psutil.NoSuchProcess):
                processes[0].kill()
        else:
            if not InFlightJournal(journal_path(rig.folder / "cache", f"{rig.name}.a")).read():
                continue
            if victim == "worker":
                deaths += 1
                with contextlib.suppress(ProcessLookupError):
                    os.kill(scorer.worker, signal.SIGKILL)
            else:
                scorer.kill()
                scorer = rig.start()
        killed += 1
        time.sleep(chance.uniform(0.0, 3.0))  # another moment each time
    within(lambda: rig.answered() >= sent, MAX_WAIT_SECONDS)
    return _outcome(rig, "by hand", sent, set(), killed, deaths, began)


def examiners(scorer: ScorerProcess) -> list[psutil.Process]:
    """Return the children of the fork server of the worker, if there are any."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [examiner for server in psutil.Process(scorer.worker).children() for examiner in server.children()]
    return []


def _outcome(rig: Rig, part: str, count: int, deadly: set[str], kills: int, deaths: int, began: float) -> Outcome:
    seconds = time.monotonic() - began
    dead_lettered = {json.loads(letter["value"])["id"] for letter in rig.dead()}
    audit = rig.audit()
    damage = {fault: audit[fault] for fault in FAULTS if audit[fault]}
    return Outcome(
        part, count, len(deadly), len(dead_lettered), len(dead_lettered - deadly), kills, deaths, round(seconds, 1), damage
    )


def _rig(bootstrap_servers: str, folder: Path, name: str) -> Rig:
    folder.mkdir()
    rig = Rig(bootstrap_servers, folder, name, kafka=KAFKA).stocked(6)
    rig.program = [sys.executable, str(Path(lethal.__file__))]
    return rig


def _line(outcome: Outcome) -> str:
    counts = f"{outcome.dead_lettered} of {outcome.deadly} deadly events dead-lettered, {outcome.wrongly_dead_lettered} others"
    cost = f"{outcome.kills} kills by hand, at most {outcome.deaths} deaths of a scorer's workers, {outcome.seconds} s"
    return f"{outcome.part}: {outcome.events} events, {counts}, {cost}; {outcome.damage or 'no event lost or duplicated'}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
