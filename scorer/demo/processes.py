"""Run the demo's processes. All of them are installed commands, which are printed as a user would type them."""

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
    """Return the path of the command that is installed beside this interpreter, or else its name, to be found in PATH."""
    installed = Path(sys.executable).with_name(name)
    return str(installed) if installed.exists() else name


class Shell:
    """Run commands in one folder, and print each as a user would type it."""

    def __init__(self, folder: Path, on_command: Callable[[str], None]) -> None:
        self.folder = folder
        self._on_command = on_command
        self._running: list[subprocess.Popen[bytes]] = []

    def run(self, *command: str) -> Any:
        """Run a command with `--json`, and return its parsed output. Raises Fatal if it fails."""
        self._on_command(shlex.join(command))
        program, *arguments = command
        done = subprocess.run([executable(program), *arguments, "--json"], cwd=self.folder, capture_output=True, check=False)
        if done.returncode != 0:
            message = done.stderr.decode("utf-8", "replace").strip() or done.stdout.decode("utf-8", "replace").strip()
            raise Fatal(f"{shlex.join(command)} ended with code {done.returncode}: {message}")
        return json.loads(done.stdout)

    def start(self, log: str, *command: str, feed: bool = False) -> subprocess.Popen[bytes]:
        """Start a command in the background, and write its output to the file `log`; with `feed`, its stdin is a pipe."""
        self._on_command(shlex.join(command) + (" < flights.jsonl &" if feed else " &"))
        program, *arguments = command
        with (self.folder / log).open("wb") as output:
            process = subprocess.Popen(
                [executable(program), *arguments],
                cwd=self.folder,
                stdin=subprocess.PIPE if feed else subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                process_group=0,
            )
        self._running.append(process)
        return process

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """Kill the process group that `start` created for the process, with SIGKILL."""
        self._on_command(f"kill -9 -- -{process.pid}")
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        """Stop a process with SIGTERM, and with SIGKILL after STOP_SECONDS."""
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def running(self) -> list[int]:
        """Return the ids of the started processes that are still running."""
        return [process.pid for process in self._running if process.poll() is None]

    def close(self) -> None:
        """Stop all started processes that are still running."""
        for process in self._running:
            if process.poll() is None:
                self.stop(process)


class EventFeed:
    """Write lines to the stdin of a process in a thread, until the lines end or `finish` is called."""

    def __init__(self, process: subprocess.Popen[bytes], lines: Iterator[bytes]) -> None:
        self.count = 0
        self._process = process
        self._lines = lines
        self._finishing = threading.Event()
        self._thread = threading.Thread(target=self._write, name="feed", daemon=True)
        self._thread.start()

    def finish(self) -> int:
        """Stop writing, wait for the process, and return the number of written lines. Raises Fatal if the process failed."""
        self._finishing.set()
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
                    if self._finishing.is_set():
                        return
                    stdin.write(line + b"\n")
                    self.count += 1
        except BrokenPipeError:
            return
