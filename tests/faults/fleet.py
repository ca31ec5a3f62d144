"""The scorers of a round: started, ended, frozen, and started again by a supervisor when they end of themselves."""

import atexit
import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

LAUNCHER = Path(__file__).with_name("launcher.py")
STOP_SECONDS = 40.0
CLOCK_SOURCE = Path(__file__).with_name("clock.c")
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

    def start(self, clock_hours: int = 0) -> None:
        """Start it where it does not run; `clock_hours` is what its clock is off by."""
        self.wanted = True
        if self.process is not None:
            return
        clock = {"LD_PRELOAD": clock_library(), "CLOCK_OFFSET_SECONDS": f"{clock_hours * 3_600}"} if clock_hours else {}
        with self._log.open("ab") as said:
            self.process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env=self._environment | clock,
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


@functools.cache
def clock_library() -> str:
    """Path of the library that makes a process' wall clock wrong, compiled once."""
    folder = Path(tempfile.mkdtemp(prefix="scorestream-clock-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    library = str(folder / "clock.so")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, str(CLOCK_SOURCE)], check=True)
    return library


def has_compiler() -> bool:
    """Whether there is a C compiler."""
    return shutil.which("cc") is not None
