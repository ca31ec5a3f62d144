"""The processes that train: a command under `guard.py` for a user's own recipe, and forked processes for the built-in recipes.

Both train in the folder of a trial under the file contract (`training.recipes.contract`). No process outlives its parent.
"""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from publisher.errors import Fatal
from training.recipes import BuiltIn, contract
from training.search import builtin_trial

GUARD = Path(__file__).with_name("guard.py")
STOP_SECONDS = 10.0


class TrialProcess(Protocol):
    """A process that trains in the folder of a trial. All its methods are called from one thread."""

    handle: Any
    """An object for `multiprocessing.connection.wait`, ready when the training may have ended; None if `ended` is polled."""

    def ended(self) -> str | None:
        """Return None while the training runs. Afterwards return "" if it succeeded, or the reason of its failure.

        Raises:
            Fatal: Exit code 2 if the recipe rejects the signature or the parameters, so that no trial can succeed; 4 if the
                processes of the recipe failed; a repeated run continues.
            ProcessDied: The process died without a reason.
        """

    def stop(self) -> None:
        """End the training, if it runs, with all of its processes."""


class ProcessDied(Exception):
    """A process of a built-in recipe died during a training. The message has its exit code or signal."""


class CommandProcess:
    """A command that trains in the folder of a trial (implements `TrialProcess`)."""

    handle = None

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: Path, space: int) -> None:
        """Start the command in `folder`. No file that it writes may have more than `space` bytes. Raises OSError."""
        guarded = [sys.executable, "-I", "-S", str(GUARD), str(os.getpid()), str(space), *command]
        with (folder / contract.LOG).open("ab") as log:
            self._process = subprocess.Popen(
                guarded,
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def ended(self) -> str | None:
        code = self._process.poll()
        if code is None:
            return None
        return _outcome(code) if code else ""

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()  # the kernel then kills the command
            self._process.wait()


class BuiltInProcess:
    """A forked process that trains with a built-in recipe, in one folder at a time (implements `TrialProcess`)."""

    def __init__(self, recipe: BuiltIn) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__, type(recipe).__module__])  # imported once, by the fork server
        self.handle, child_end = context.Pipe()
        self._process = context.Process(target=_serve, args=(child_end, recipe), daemon=True)
        self._process.start()
        child_end.close()
        self.alive = True

    def start(self, folder: Path) -> None:
        """Start a training in this folder. The previous training must have ended."""
        with contextlib.suppress(OSError):  # the process has died: `ended` then raises ProcessDied
            self.handle.send(folder)

    def ended(self) -> str | None:
        try:
            if not self.handle.poll():
                return None
            reply = self.handle.recv()
        except (EOFError, OSError):
            self.stop()
            raise ProcessDied(_outcome(self._process.exitcode or 0)) from None
        if isinstance(reply, Fatal):
            raise reply
        return str(reply)

    def stop(self) -> None:
        self.alive = False
        self._process.kill()
        self._process.join()
        self.handle.close()


def _outcome(code: int) -> str:
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:  # a real-time signal
            name = f"signal {-code}"
        return f"its process was ended by {name}"
    return f"its process ended with exit code {code}"


def _serve(connection: Connection, recipe: BuiltIn) -> None:
    """Train in the folders that the parent sends, until the pipe ends. The parent alone handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    trial = builtin_trial.BuiltInTrial(recipe)
    while True:
        try:
            folder: Path = connection.recv()
        except EOFError:
            return
        connection.send(trial.run(folder))


def _end_with_parent() -> None:
    """Wait for the end of the parent process, then end this process, even during a training."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
