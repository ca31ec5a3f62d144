"""Kill an embedded broker and remove its folder when its owner process ends in any way.

This file is also the program of a small process, the reaper, so it uses the standard library only.
"""

# The owner holds the only write end of a pipe. The reaper, in its own session, reads from this pipe. When the owner has ended,
# by SIGKILL or otherwise, the reaper reaches the end of its input. It then kills the last watched broker and removes the
# folder. The kernel's parent-death signal is not used for three reasons: it depends on the thread that started the broker, it
# cannot be cancelled for a detached broker, and it does not remove the folder.

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
    """Starts and controls the reaper. The owner process creates it before the broker, so that the broker is always watched."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in a terminal reaches the owner only
        )

    def watch(self, pid: int) -> None:
        """Let the reaper watch the process `pid` as the broker."""
        self._send(f"watch {pid}\n")

    def release(self) -> None:
        """End the reaper without killing or removing anything, because the broker has ended or is detached."""
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
            return  # the reaper was killed: only the owner's own clean-up remains


def create_kill(pid: int) -> Callable[[], None]:
    """Return a function that kills exactly this process, even if its id is reused later (Linux)."""
    handle = os.pidfd_open(pid)

    def kill() -> None:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        select.select([handle], [], [], KILL_WAIT_SECONDS)

    return kill


def run_reaper(lines: Iterable[str], folder: Path) -> None:
    """Read commands until `release` or until the input ends. If the input ends, kill the broker and remove the folder."""
    kill: Callable[[], None] | None = None
    for line in lines:
        command, _, argument = line.strip().partition(" ")
        if command == "release":
            return
        try:
            kill = create_kill(int(argument))
        except ProcessLookupError:
            kill = None
    if kill is not None:
        with suppress(ProcessLookupError):
            kill()
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    run_reaper(sys.stdin, Path(sys.argv[1]))
