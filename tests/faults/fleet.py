"""The scorers of a round: started, ended, frozen, and started again by a supervisor when they end of themselves."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

LAUNCHER = Path(__file__).with_name("launcher.py")
STOP_SECONDS = 40.0
CLOCK_VARIABLES = ("LD_PRELOAD", "FAKETIME")
RESTART_SECONDS = 0.5  # as a supervisor would wait


class Slot:
    """One replica: the process that runs under its name now, or none."""

    def __init__(self, replica: str, folder: Path, broken: str | None, installed: bool, flags: Sequence[str]) -> None:
        self.replica = replica
        self.exits: list[int] = []
        self.process: subprocess.Popen[bytes] | None = None
        self.wanted = False
        self.due = 0.0
        self._folder = folder
        self._armed = folder / f"armed-{replica}"
        self._log = folder / f"scorer-{replica}.log"
        scorer = [str(Path(sys.executable).with_name("scorer")), "run", "--workers", "1"]
        program = scorer if installed else [sys.executable, str(LAUNCHER)]
        self._command = [*program, "scorer.yaml", "--set", f"replica={replica}", *flags]
        self._environment = os.environ | {"ARM_FILE": str(self._armed)} | ({"BROKEN": broken} if broken else {})

    def start(self, clock: str | None = None) -> None:
        """Start it where it does not run; `clock` such as +48h is what its clock is off by."""
        self.wanted = True
        if self.process is not None:
            return
        with self._log.open("ab") as said:
            self.process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env=self._environment | (clock_environment(clock) if clock else {}),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )

    def arm(self, point: str) -> None:
        """It shall crash when it comes to this point of a transaction."""
        self.disarm()
        self._armed.symlink_to(point)

    def disarm(self) -> None:
        """Or not."""
        self._armed.unlink(missing_ok=True)

    @property
    def armed(self) -> bool:
        """Whether the crash is still to come."""
        return self._armed.is_symlink()

    def send(self, number: signal.Signals) -> None:
        """A signal, where it runs."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)

    def stop(self) -> None:
        """SIGTERM, and no restart."""
        self.wanted = False
        self.send(signal.SIGTERM)

    def tend(self, now: float) -> None:
        """Reap it where it has ended, and start it again where it is wanted."""
        if self.process is not None and (code := self.process.poll()) is not None:
            self.exits.append(code)
            self.process = None
            self.due = now + RESTART_SECONDS
        if self.process is None and self.wanted and now >= self.due:
            self.start()

    def end(self) -> None:
        """Whatever it takes."""
        self.wanted = False
        self.disarm()
        if self.process is None:
            return
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.exits.append(self.process.wait())
        self.process = None

    def said(self) -> str:
        """Its log so far."""
        return self._log.read_text(errors="replace") if self._log.is_file() else ""


class Fleet:
    """`installed`: the command as it is, which cannot be armed; else the launcher, `broken` as it says."""

    def __init__(
        self, folder: Path, scorers: int, *, broken: str | None = None, installed: bool = False, flags: Sequence[str] = ()
    ) -> None:
        self.slots = [Slot(f"r{k}", folder, broken, installed, flags) for k in range(scorers)]

    def start(self) -> None:
        """All of them."""
        for slot in self.slots:
            slot.start()

    def tend(self, now: float) -> None:
        """Once in a while: see `Slot.tend`."""
        for slot in self.slots:
            slot.tend(now)

    def heal(self) -> None:
        """All run again, none is frozen or armed."""
        for slot in self.slots:
            slot.disarm()
            slot.send(signal.SIGCONT)
            slot.start()

    def close(self) -> None:
        """End all, politely; those that can be told at once."""
        for slot in self.slots:
            slot.send(signal.SIGCONT)
            slot.stop()
        for slot in self.slots:
            slot.end()


def clock_environment(clock: str) -> dict[str, str]:
    """What a process needs for a clock that is off. The command itself would be a process in between, which signals end."""
    told = subprocess.run(["faketime", "-f", clock, "env"], capture_output=True, text=True, check=True)
    found = dict(line.split("=", 1) for line in told.stdout.splitlines() if "=" in line)
    return {name: value for name, value in found.items() if name in CLOCK_VARIABLES}


def has_faketime() -> bool:
    """Whether Debian's faketime is installed."""
    return shutil.which("faketime") is not None
