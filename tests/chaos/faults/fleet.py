"""The scorers of a round: they are started, ended and frozen, and restarted by a supervisor when they end by themselves."""

import signal
import sys
from functools import partial
from pathlib import Path

from tests.chaos.supervised import Supervised

LAUNCHER = (sys.executable, "-m", "tests.chaos.faults.launcher")


class Slot(Supervised):
    """One replica: its current process, or none."""

    def __init__(self, replica: str, folder: Path, broken: str | None, name: str = "") -> None:
        self.replica = replica
        command = [*LAUNCHER, "run", "scorer.yaml", "--workers", "1", "--set", f"replica={replica}"]
        super().__init__(name or f"scorer-{replica}", folder, command, {"BROKEN": broken} if broken else {})


class Fleet:
    """Scorers that can be armed; `broken`: see `launcher.py`."""

    def __init__(self, folder: Path, scorers: int, broken: str | None = None) -> None:
        self._slot = partial(Slot, folder=folder, broken=broken)
        self.slots = [self._slot(f"r{k}") for k in range(scorers)]
        self.twins: list[Slot] = []

    def start(self) -> None:
        for slot in self.slots:
            slot.start()

    def start_twin(self, number: int) -> None:
        """Start a second process of this replica, which is not restarted."""
        replica = self.slots[number].replica
        self.twins.append(self._slot(replica, name=f"twin-{len(self.twins)}-{replica}"))
        self.twins[-1].start()
        self.twins[-1].wanted = False

    def stop_twins(self) -> None:
        for twin in self.twins:
            twin.stop()

    def tend(self, now: float) -> None:
        for slot in (*self.slots, *self.twins):
            slot.tend(now)

    def heal(self) -> None:
        self.stop_twins()
        for slot in self.slots:
            slot.disarm()
            slot.send(signal.SIGCONT)
            slot.start()

    def close(self) -> None:
        for slot in (*self.slots, *self.twins):
            slot.send(signal.SIGCONT)
            slot.stop()
        for slot in (*self.slots, *self.twins):
            slot.end()
