"""The demo's processes: the installed commands, each printed as a user would type it. No private entry point."""

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from publisher.errors import Fatal

STOP_SECONDS = 20.0


def executable(name: str) -> str:
    """The installed command beside this interpreter, else whatever PATH has."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else name


class Shell:
    """Runs commands in one working folder and tells each as it is typed there."""

    def __init__(self, folder: Path, tell: Callable[[str], None]) -> None:
        self.folder = folder
        self._tell = tell
        self._running: list[subprocess.Popen[bytes]] = []

    def run(self, *command: str) -> Any:
        """Run to the end; what it printed with --json. Raises Fatal where it fails."""
        self._tell(shlex.join(command))
        program, *arguments = command
        done = subprocess.run([executable(program), *arguments, "--json"], cwd=self.folder, capture_output=True, check=False)
        if done.returncode != 0:
            said = done.stderr.decode("utf-8", "replace").strip() or done.stdout.decode("utf-8", "replace").strip()
            raise Fatal(f"{shlex.join(command)} ended with code {done.returncode}: {said}")
        return json.loads(done.stdout)

    def start(self, log: str, *command: str, feed: bool = False) -> subprocess.Popen[bytes]:
        """Start in the background; what it says goes to the file `log`. With `feed` its stdin is a pipe."""
        self._tell(shlex.join(command) + (" < flights.jsonl &" if feed else " &"))
        program, *arguments = command
        with (self.folder / log).open("wb") as said:
            process = subprocess.Popen(
                [executable(program), *arguments],
                cwd=self.folder,
                stdin=subprocess.PIPE if feed else subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                process_group=0,
            )
        self._running.append(process)
        return process

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        self._tell(f"kill -9 -- -{process.pid}")
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def running(self) -> list[int]:
        return [process.pid for process in self._running if process.poll() is None]

    def close(self) -> None:
        """End whatever still runs, by its own process id."""
        for process in self._running:
            if process.poll() is None:
                self.stop(process)


class EventFeed:
    """Writes lines to a process's stdin from a thread of its own, until they end or `finish` is called."""

    def __init__(self, process: subprocess.Popen[bytes], lines: Iterator[bytes]) -> None:
        self.count = 0
        self._process = process
        self._lines = lines
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._write, name="feed", daemon=True)
        self._thread.start()

    def finish(self) -> int:
        """End the lines, wait for the process, and return how many lines were given. Raises Fatal if the process failed."""
        self._enough.set()
        self._thread.join()
        if (code := self._process.wait()) != 0:
            raise Fatal(f"the process that writes the flights ended with code {code}", "see its log, emit.log or first.log")
        return self.count

    def _write(self) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        try:
            with stdin:
                for line in self._lines:
                    if self._enough.is_set():
                        return
                    stdin.write(line + b"\n")
                    self.count += 1
        except BrokenPipeError:
            return
