"""A controller is killed at each step of a move, and an unmodified second one takes over."""

import contextlib
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from tests.chaos.command import talk
from tests.chaos.rollouts.counting import FAULTS, move_faults, spread
from tests.chaos.rollouts.ground import SESSION_MS, Ground, listens
from tests.chaos.rollouts.plan import POINTS, Death
from tests.chaos.rollouts.rounds import in_parallel
from tests.chaos.supervised import Supervised
from tests.support.environment import ROOT
from tests.support.waiting import until

STEPS: tuple[dict[str, Any], ...] = ({"canary": "50%", "approve": True}, {"promote": True})
ACTS = "this controller is the leader"
MOVES = 2
BAR_SECONDS = SESSION_MS / 1_000 + 2.0
POLL_SECONDS = 0.01
MAX_WAIT_SECONDS = 120.0


class Lane:
    """One channel without load, on which controllers die one after the other."""

    def __init__(self, bootstrap_servers: str, folder: Path, name: str) -> None:
        self.ground = Ground(bootstrap_servers, folder / name, name, partitions=1)
        self.takeovers: list[tuple[str, float]] = []
        """The point of each death, and the seconds until the successor wrote."""
        self.faults: Counter[str] = Counter(dict.fromkeys(FAULTS, 0))
        self.rollouts = self.broken_off = 0
        self._slots: tuple[Supervised, ...] = ()

    def play(self, deaths: "deque[Death]", turn: Lock) -> None:
        """Play deaths from the queue until it is empty. Raises AssertionError after a timeout."""
        while True:
            with turn:
                if not deaths:
                    break
                death = deaths.popleft()
            self._play(death)
        faults, self.broken_off = move_faults(self.ground.log.entries, self.ground.history(), self.ground.current())
        self.faults.update(faults)

    def close(self) -> None:
        self._end()
        self.ground.close()

    def _end(self) -> None:
        for slot in self._slots:
            slot.end()

    def _play(self, death: Death) -> None:
        self.rollouts += 1
        victim, heir = self._slots = self._victim(death), self.ground.controller(f"heir-{self.rollouts}")
        victim.start()
        try:
            until(lambda: ACTS in victim.log_text(), "the victim's turn")
            heir.start()
            until(lambda: listens(heir), "the heir")
            self._take_over(death, victim, f"{self.ground.rig.name}.rollout.heir-{self.rollouts}")
        finally:
            self._end()
        self.faults["wrong_ends"] += [victim.exits, heir.exits] != [[-signal.SIGKILL], [0]]

    def _take_over(self, death: Death, victim: Supervised, heir: str) -> None:
        log, ended, acted = self.ground.log, _ended(victim), False
        name, deadline = self.ground.begin(self.ground.twin, STEPS), time.monotonic() + MAX_WAIT_SECONDS
        while log.outcome(name) is None or not ended:
            assert time.monotonic() < deadline, f"{death} does not end: {[entry.value for entry in log.entries.get(name, [])]}"
            if not acted and log.of(name, "moved") and (ended or death.nth > 1):
                self.ground.ask("abort" if death.aborted else "approve")
                acted = True
            log.poll(POLL_SECONDS)
        killed, wrote = ended[0], next(at for writer, at in log.writers if writer == heir)
        self.takeovers.append((death.point, wrote - killed))
        outcome = log.outcome(name)
        self.faults["wrong_outcomes"] += outcome != ("aborted" if death.aborted else "completed")
        self.faults["unmade_moves"] += [len(log.of(name, kind)) for kind in ("intended", "moved")] != [MOVES, MOVES]
        if outcome == "completed":
            self.ground.champion = self.ground.twin
        talk.print(f"{self.ground.rig.name}: {death} {outcome}, taken over after {wrote - killed:.2f} s", markup=False)

    def _victim(self, death: Death) -> Supervised:
        program = [sys.executable, "-m", "tests.chaos.rollouts.victim", "scorer.yaml"]
        replica = f"victim-{self.rollouts}"
        arguments = [*program, death.point, str(death.nth), replica]
        return Supervised(replica, self.ground.rig.folder, arguments, {"PYTHONPATH": str(ROOT)})


def _ended(victim: Supervised) -> list[float]:
    """Return a list that gets the time of the end (monotonic seconds) when the process ends."""
    at: list[float] = []

    def wait() -> None:
        assert victim.process is not None
        victim.process.process.wait()
        at.append(time.monotonic())

    Thread(target=wait, daemon=True).start()
    return at


def campaign(bootstrap_servers: str, folder: Path, deaths: Sequence[Death], lanes: int) -> dict[str, Any]:
    """Play all deaths on so many channels at once, and return the figures. Raises RuntimeError, AssertionError."""
    waiting, turn = deque(deaths), Lock()
    with contextlib.ExitStack() as undo:
        played = [Lane(bootstrap_servers, folder, f"kills-{lane}") for lane in range(min(lanes, len(deaths)))]
        for lane in played:
            undo.callback(lane.close)
        in_parallel([partial(lane.play, waiting, turn) for lane in played])
    takeovers = [takeover for lane in played for takeover in lane.takeovers]
    faults = sum((lane.faults for lane in played), Counter(dict.fromkeys(FAULTS, 0)))
    return {
        "deaths": len(takeovers),
        "session_timeout_seconds": SESSION_MS / 1_000,
        "broken_off": sum(lane.broken_off for lane in played),
        "take_over_seconds": spread([seconds for _, seconds in takeovers]),
        "by_point": {point: spread([seconds for at, seconds in takeovers if at == point]) for point in POINTS},
        "faults": {"rollouts": {name: faults[name] for name in FAULTS}},
    }
