"""The environment of the campaign: a registry with two versions, scorers that are killed and restarted, load and a reader."""

import json
import random
import signal
import time
from collections import deque
from pathlib import Path
from typing import Any

from tests.chaos.canary.plan import SHARES, Move, Plan, key
from tests.chaos.canary.recount import Recount, Revision
from tests.chaos.load import Load
from tests.chaos.supervised import Supervised
from tests.chaos.watch import Watch
from tests.integration.scorer.rig import Rig
from tests.support import auditor
from tests.support.processes import command
from tests.support.waiting import until

PARTITIONS = 6
MAX_WAIT_SECONDS = 600.0
POLL_SECONDS = 0.01
STARTED, ASSIGNED = "worker 0 is process", "assigned: "  # words of a scorer's log
CANDIDATE = "2.0.0"
FACTORS = {"1.0.0": 2.0, CANDIDATE: 3.0}
"""The factor of each version."""


class KeyedLoad(Load):
    """Writes the events of a plan, each with its key."""

    def __init__(self, rig: Rig, planned: Plan, rate: float) -> None:
        super().__init__(rig.bootstrap_servers, rig.events_topic, rate, len(planned.keys))
        self._numbers = planned.keys.tolist()

    def _key(self, number: int) -> bytes | None:
        return key(self._numbers[number])


class Stage:
    """`rate`: events a second. `kills` and `exits` count the kills and exit codes so far."""

    def __init__(self, bootstrap_servers: str, folder: Path, planned: Plan, scorers: int, rate: float, seed: int) -> None:
        self.rig = Rig(bootstrap_servers, folder, "canary").stocked(PARTITIONS, versions=len(FACTORS))
        self.kills = 0
        self._planned = planned
        self._chance = random.Random(seed)
        self._digests = {version: self._digest(version) for version in FACTORS}
        self._revisions = {1: Revision(self._digests["1.0.0"])}
        self._slots = [self._slot(f"r{number}") for number in range(scorers)]
        self._load = KeyedLoad(self.rig, planned, rate)
        self._watch = Watch(bootstrap_servers, self.rig.scores_topic, self.rig.dead_topic)

    @property
    def exits(self) -> list[int]:
        """How processes ended: exit codes, and signals as negative numbers."""
        return [code for slot in self._slots for code in slot.exits]

    @property
    def stall_seconds(self) -> float:
        """The longest pause of a partition for a reader of committed records."""
        return round(self._watch.stalls.longest, 2)

    def play(self) -> None:
        """Write all events, run all steps, and end when every event has an answer. Raises AssertionError, RuntimeError."""
        self._watch.start()
        for slot in self._slots:
            slot.start()
        until(lambda: self._tended() and all(map(_works, self._slots)), "the partitions of all scorers", MAX_WAIT_SECONDS)
        self._load.start()
        self._flow()
        self._load.finish()
        for slot in self._slots:
            slot.end()

    def audited(self) -> dict[str, Any]:
        """Return the count of the product."""
        report: dict[str, Any] = json.loads(self.rig.run("scorer", "audit", str(self.rig.path), "--json", code=None).stdout)
        return report

    def recounted(self) -> dict[str, Any]:
        """Return the count of the campaign: see `recount.py`."""
        factors = {self._digests[version]: factor for version, factor in FACTORS.items()}
        recount = Recount(self._planned.keys, self._revisions, self._digests[CANDIDATE], factors)
        for message in auditor.read(self.rig.bootstrap_servers, f"{self.rig.name}.swaps"):
            recount.cut_over(json.loads(message.value() or b""))
        for message in auditor.read(self.rig.bootstrap_servers, self.rig.scores_topic):
            recount.score(json.loads(message.value() or b""), _bytes(message.key()))
        return recount.figures()

    def close(self) -> None:
        for slot in self._slots:
            slot.end()
        self._watch.close()
        self.rig.close()

    def _flow(self) -> None:
        """Kill scorers and move the channel as planned, until all events have answers."""
        kills, moves = deque(self._planned.kills), deque(self._planned.moves)
        answered, since = -1, time.monotonic()
        while answered < len(self._planned.keys):
            if self._watch.seen > answered:
                answered, since = self._watch.seen, time.monotonic()
            if time.monotonic() > since + MAX_WAIT_SECONDS:
                raise RuntimeError(
                    f"{answered} of {len(self._planned.keys)} have answers, and none was added within {MAX_WAIT_SECONDS:.0f} s"
                )
            if kills and self._load.written >= kills[0] and self._killed():
                kills.popleft()
            if moves and answered >= moves[0].at:
                self._move(moves.popleft())
            self._tended()
            time.sleep(POLL_SECONDS)

    def _tended(self) -> bool:
        for slot in self._slots:
            slot.tend(time.monotonic())
        return True

    def _killed(self) -> bool:
        """Kill a scorer that has partitions, if there is one; it is restarted."""
        if not (working := [slot for slot in self._slots if _works(slot)]):
            return False
        chosen = self._chance.choice(working)
        chosen.send(signal.SIGKILL)
        until(lambda: not chosen.running, "the end of a killed scorer", every=POLL_SECONDS)
        self.kills += 1
        return True

    def _move(self, move: Move) -> None:
        """Move the channel to the candidate: as a canary of this share, or as the champion."""
        whole = move.percent == SHARES[-1]
        canary = [] if whole else ["--canary", f"{move.percent}%"]
        moved = self.rig.run("scorer", "promote", str(self.rig.path), "--to", CANDIDATE, *canary, "--json")
        revision = Revision(self._digests[CANDIDATE]) if whole else Revision(self._digests["1.0.0"], move.percent)
        self._revisions[json.loads(moved.stdout)["revision"]] = revision

    def _digest(self, version: str) -> str:
        completed = self.rig.run("model-registry", "inspect", f"oci:./registry/model:{version}", "--json")
        return str(json.loads(completed.stdout)["digest"])

    def _slot(self, replica: str) -> Supervised:
        arguments = [command("scorer"), "run", "scorer.yaml", "--workers", "1", "--set", f"replica={replica}"]
        return Supervised(f"scorer-{replica}", self.rig.folder, arguments, {})


def _works(slot: Supervised) -> bool:
    """Whether its process has partitions."""
    return slot.running and ASSIGNED in slot.log_text().rpartition(STARTED)[2]


def _bytes(text: str | bytes | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text
