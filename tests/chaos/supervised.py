"""One process of a campaign: it is started, ended, frozen and armed, and restarted when it ends by itself."""

import atexit
import functools
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.processes import Program
from tests.support.waiting import within

STOP_SECONDS = 40.0
CLOCK_SOURCE = Path(__file__).with_name("clock.c")
RESTART_SECONDS = 0.5  # as a supervisor would wait


class Supervised:
    """The current process with this name, or none. `folder` is its working directory and holds its log. The environment
    variable ARM_FILE names the file with the point at which the process crashes."""

    def __init__(self, name: str, folder: Path, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.exits: list[int] = []
        self.process: Program | None = None
        self.wanted = False
        self.due = 0.0
        self.command = list(command)
        self._folder = folder
        self._armed = folder / f"armed-{name}"
        self._log = folder / f"{name}.log"
        self._environment = {"ARM_FILE": str(self._armed), **environment}

    def start(self, clock_hours: int = 0) -> None:
        """Start the process unless it is running; `clock_hours` is the error of its clock."""
        self.wanted = True
        if self.process is not None:
            return
        clock = {"LD_PRELOAD": clock_library(), "CLOCK_OFFSET_SECONDS": f"{clock_hours * 3_600}"} if clock_hours else {}
        self.process = Program(self.command, self._log, self._environment | clock, self._folder)

    def arm(self, point: str) -> None:
        """Let the process crash when it reaches this point of a transaction."""
        self.disarm()
        self._armed.symlink_to(point)

    def disarm(self) -> None:
        self._armed.unlink(missing_ok=True)

    @property
    def armed(self) -> bool:
        return self._armed.is_symlink()

    @property
    def running(self) -> bool:
        return self.process is not None and not self.process.ended

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all processes of the group; SIGTERM only to the first, which forwards it."""
        if self.process is not None and number is signal.SIGTERM:
            self.process.process.terminate()
        elif self.process is not None:
            self.process.send(number)

    def stop(self) -> None:
        self.wanted = False
        self.send(signal.SIGTERM)

    def tend(self, now: float) -> None:
        """Reap the process if it has ended, and restart it if it is to run."""
        if self.process is not None and self.process.ended:
            self.exits.append(self.process.wait())
            self.process = None
            self.due = now + RESTART_SECONDS
        if self.process is None and self.wanted and now >= self.due:
            self.start()

    def end(self) -> None:
        self.wanted = False
        self.disarm()
        if self.process is None:
            return
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)
        if not within(lambda: not self.running, STOP_SECONDS):
            self.send(signal.SIGKILL)
        self.exits.append(self.process.wait())
        self.process = None

    def log_text(self) -> str:
        return self._log.read_text(errors="replace") if self._log.is_file() else ""


@functools.cache
def clock_library() -> str:
    """Path of the library that makes a process' wall clock wrong, compiled once."""
    folder = Path(tempfile.mkdtemp(prefix="scorestream-clock-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    library = str(folder / "clock.so")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, str(CLOCK_SOURCE)], check=True)
    return library
