"""Run a command and end every process that it started: `python guard.py PARENT FILE_BYTES COMMAND...`.

The exit code is that of the command. All processes below the guard are killed when the command ends, when the guard receives
SIGTERM, or when its parent, the process PARENT, dies (Linux). No file of the command may become larger than FILE_BYTES.

The guard runs as a script of its own and imports only the standard library, so that it starts within milliseconds.
"""

# A process group is not enough: a command may start processes in sessions of their own, as torchrun does. On Linux the guard is
# the "subreaper" of all processes below it, so that none of them leaves its tree when a process between them ends.

import contextlib
import ctypes
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
NOT_STARTED = 127


class _Stopped(Exception):
    """The guard has received SIGTERM."""


def main(arguments: list[str]) -> int:
    """Run the command and return its exit code; minus the number of a signal if a signal has ended it."""
    parent, limit, *command = arguments
    signal.signal(signal.SIGTERM, _stop)
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        if os.getppid() != int(parent):
            return -signal.SIGTERM
        pid = os.fork()
        if not pid:
            _become(command, int(limit))
    except _Stopped:
        _kill_all()
        return -signal.SIGTERM
    try:
        return _wait(pid)
    except _Stopped:
        return -signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
        _kill_all()


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise _Stopped


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value)


def _become(command: list[str], limit: int) -> NoReturn:
    """Replace this process by the command, which dies with the guard and cannot write files larger than `limit` bytes."""
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]} cannot be started: {error.strerror}\n".encode())
    finally:
        os._exit(NOT_STARTED)


def _wait(pid: int) -> int:
    """Wait for the command, and reap orphaned processes below it meanwhile; return the exit code of the command."""
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == pid:
            return os.waitstatus_to_exitcode(status)


def _kill_all() -> None:
    """Kill the processes below this one until none is left (Linux)."""
    while below := list(_below(os.getpid())):
        for pid in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.002)


def _below(root: int) -> Iterator[int]:
    """Yield the ids of the processes below a process."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir() if sys.platform == "linux" else ():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError, ValueError):
                state, parent, *_ = (folder / "stat").read_bytes().rpartition(b") ")[2].split()
                if state != b"Z":
                    parents.setdefault(int(parent), []).append(int(folder.name))
    waiting = [root]
    while waiting:
        children = parents.get(waiting.pop(), [])
        yield from children
        waiting += children


def _end_like(code: int) -> None:
    """End this process with an exit code, or by the signal that ended the command."""
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    _end_like(main(sys.argv[1:]))
