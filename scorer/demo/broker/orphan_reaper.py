"""Ends an embedded broker and removes its folder when the Python process that owns it is gone, however it went.

The owner holds the only writing end of a pipe; the guard, a small process of its own session, reads the other. The end of
the file means that the owner died, SIGKILL included: the guard then kills the broker that it was last told of and removes
the folder. A parent-death signal would be tied to the thread that started the broker, could not be taken back for a broker
that is left running on purpose, and would leave the folder. This file is also the guard's program: standard library only.
"""

import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

KILL_WAIT_SECONDS = 10.0


class OrphanReaper:
    """The owner's side. Made before the broker is started, so that no moment is unguarded."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in a terminal reaches the owner only
        )

    def watch(self, pid: int) -> None:
        """From now on this process is the broker."""
        self._send(f"watch {pid}\n")

    def release(self) -> None:
        """The broker has ended, or is left running on purpose: the guard ends and touches nothing."""
        self._send("release\n")
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            return  # the guard itself was killed: the owner's own clean-up remains


def killer(pid: int) -> Callable[[], None]:
    """What kills exactly this process, also when its number has been given to another one since (Linux)."""
    handle = os.pidfd_open(pid)

    def kill() -> None:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        select.select([handle], [], [], KILL_WAIT_SECONDS)

    return kill


def keep_guard(lines: Iterable[str], folder: Path) -> None:
    """Read orders until `release` or the end; at the end kill what is watched and remove the folder."""
    kill: Callable[[], None] | None = None
    for line in lines:
        order, _, argument = line.strip().partition(" ")
        if order == "release":
            return
        try:
            kill = killer(int(argument))
        except ProcessLookupError:
            kill = None
    if kill is not None:
        with suppress(ProcessLookupError):
            kill()
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    keep_guard(sys.stdin, Path(sys.argv[1]))
