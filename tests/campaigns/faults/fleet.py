"""The scorers of a round: started, ended, frozen, and started again by a supervisor when they end of themselves."""

import shutil
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.campaigns.supervised import Supervised

LAUNCHER = Path(__file__).with_name("launcher.py")


class Slot(Supervised):
    """One replica: the process that runs under its name now, or none."""

    def __init__(
        self, replica: str, folder: Path, broken: str | None, installed: bool, flags: Sequence[str], name: str = ""
    ) -> None:
        self.replica = replica
        scorer = [str(Path(sys.executable).with_name("scorer")), "run", "--workers", "1"]
        program = scorer if installed else [sys.executable, str(LAUNCHER)]
        command = [*program, "scorer.yaml", "--set", f"replica={replica}", *flags]
        super().__init__(name or f"scorer-{replica}", folder, command, {"BROKEN": broken} if broken else {})


class Fleet:
    """`installed`: the command as it is, which cannot be armed; else the launcher, `broken` as it says."""

    def __init__(
        self, folder: Path, scorers: int, *, broken: str | None = None, installed: bool = False, flags: Sequence[str] = ()
    ) -> None:
        self._slot = partial(Slot, folder=folder, broken=broken, installed=installed, flags=flags)
        self.slots = [self._slot(f"r{k}") for k in range(scorers)]
        self.twins: list[Slot] = []

    def start(self) -> None:
        """All of them."""
        for slot in self.slots:
            slot.start()

    def start_twin(self, number: int) -> None:
        """A second process of this replica, which is not started again."""
        replica = self.slots[number].replica
        self.twins.append(self._slot(replica, name=f"twin-{len(self.twins)}-{replica}"))
        self.twins[-1].start()
        self.twins[-1].wanted = False

    def stop_twins(self) -> None:
        """Those that still run."""
        for twin in self.twins:
            twin.stop()

    def tend(self, now: float) -> None:
        """Once in a while: see `Slot.tend`."""
        for slot in (*self.slots, *self.twins):
            slot.tend(now)

    def heal(self) -> None:
        """All run again, none is frozen or armed."""
        self.stop_twins()
        for slot in self.slots:
            slot.disarm()
            slot.send(signal.SIGCONT)
            slot.start()

    def close(self) -> None:
        """End all, politely; those that can be told at once."""
        for slot in (*self.slots, *self.twins):
            slot.send(signal.SIGCONT)
            slot.stop()
        for slot in (*self.slots, *self.twins):
            slot.end()


def has_compiler() -> bool:
    """Whether there is a C compiler."""
    return shutil.which("cc") is not None
