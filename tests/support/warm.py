"""Start the installed commands without the time of their imports: a process that has imported them forks for each command.

Each command has its own process, working directory, environment, files and exit code, and executes the installed script, as if
a shell had started it. A fork takes 0.02 s of CPU time, a new Python process with the same imports 0.5 to 1.2 s. One process
forks for all commands of a test process. It has no threads and no Kafka client.

A fork differs from a new process in three ways: variables that Python or a library reads at its start have the values of the
first command; all commands have the same seed of hashes; and `/proc/PID/cmdline` names this module. Tests of these things, of
chaos and of performance start new processes.
"""

import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import typer

from tests.support.waiting import STEP_SECONDS

PROGRAMS = {"scorer": "scorer.cli", "publisher": "publisher.cli", "model-registry": "model_registry.cli"}
USED_LATER = (
    "httpx",
    "model_registry.onnx_tools.onnx_reader",
    "model_registry.package",
    "model_registry.stores.open",
    "scorer.backends.select",
    "scorer.service.worker_main",
    "scorer.settings.shadow_worker",
)
"""Modules that commands import inside functions. ONNX Runtime is not imported before a fork, because its import starts
threads."""
TEST = "PYTEST_CURRENT_TEST"
"""The environment variable in which pytest names the current test."""
START_SECONDS = 60.0


class ForkedCommand:
    """A running command, with the part of the interface of `subprocess.Popen` that tests use."""

    def __init__(self, arguments: Sequence[str], status: socket.socket) -> None:
        self.args = list(arguments)
        self.returncode: int | None = None
        self._status = status
        self._received = b""
        self.pid = int(self._read_line(START_SECONDS))

    def poll(self) -> int | None:
        """Return the exit code, or the negated number of the signal that ended the command; None while it runs."""
        try:
            return self.wait(0.0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float = STEP_SECONDS) -> int:
        """Wait for the end of the command, and return its exit code. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(int(self._read_line(timeout)))
            self._status.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _read_line(self, seconds: float) -> bytes:
        deadline = time.monotonic() + seconds
        while b"\n" not in self._received:
            if not select.select([self._status], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise subprocess.TimeoutExpired(self.args, seconds)
            data = self._status.recv(100)
            assert data, f"the process that forks for commands failed, or ended while a command ran: {self.args}"
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line


class ForkServer:
    """The process that has imported the commands and forks for each command. It ends when the current process ends."""

    def __init__(self) -> None:
        self.environment = _environment()
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.warm", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
            )

    def start(
        self,
        arguments: Sequence[str],
        files: tuple[IO[bytes], IO[bytes], IO[bytes]],
        cwd: Path | None = None,
        *,
        own_group: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> ForkedCommand:
        """Start a command.

        Args:
            arguments: The path of the command's script, and its arguments.
            files: Standard input, output and error.
            cwd: The working directory; None for the current one.
            own_group: Whether the command leads a new process group.
            environment: The command's environment variables; None for those of this process.
        """
        assert self._process.poll() is None, f"the process that forks for commands has ended with {self._process.returncode}"
        request = [list(arguments), str(cwd or Path.cwd()), dict(os.environ if environment is None else environment), own_group]
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._control, [b"+"], [theirs.fileno(), *(file.fileno() for file in files)])
        ours.sendall(json.dumps(request).encode() + b"\n")
        return ForkedCommand(arguments, ours)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._control.close()


@functools.cache
def server() -> ForkServer:
    """Return the fork server of this process, which the first call starts."""
    return ForkServer()


def is_usable(arguments: Sequence[str]) -> bool:
    """Return whether a test may fork for this command: an installed script, with the environment variables of the server."""
    path = Path(arguments[0])
    installed = path.name in PROGRAMS and path.parent == Path(sys.executable).parent
    restarts = arguments[1:2] == ["train"]  # by its command line, which is not that of a fork
    return installed and not restarts and TEST in os.environ and _environment() == server().environment


def run(
    arguments: Sequence[str], cwd: Path | None = None, stdin: bytes = b"", environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run an installed command to its end. Raises TimeoutExpired if the command runs for more than `STEP_SECONDS`."""
    with (
        tempfile.TemporaryFile() as stdin_file,
        tempfile.TemporaryFile() as stdout_file,
        tempfile.TemporaryFile() as stderr_file,
    ):
        stdin_file.write(stdin)
        stdin_file.seek(0)
        running = server().start(arguments, (stdin_file, stdout_file, stderr_file), cwd, environment=environment)
        try:
            code = running.wait(STEP_SECONDS)
        except subprocess.TimeoutExpired:
            os.kill(running.pid, signal.SIGKILL)
            raise
        stdout_file.seek(0)
        stderr_file.seek(0)
        return subprocess.CompletedProcess(arguments, code, stdout_file.read(), stderr_file.read())


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != TEST}


def _serve(control: socket.socket) -> None:
    """Fork for each command. The function returns only in the forked process of a command, with `sys.argv` set."""
    for name in PROGRAMS.values():
        commands = typer.main.get_command(importlib.import_module(name).app).commands  # type: ignore[attr-defined]
        assert commands, f"{name} has no commands"
        for command in commands:
            commands[command]  # imports it
    for name in USED_LATER:
        importlib.import_module(name)
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a process with threads must not fork"
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    while True:
        request, files, _, _ = socket.recv_fds(control, 1, 4)
        if not request:
            sys.exit()
        try:
            pid = os.fork()
        except OSError as error:  # the caller notices the end of the connection
            print(f"cannot fork for a command: {error}", file=sys.stderr)
            pid = -1
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            control.close()
            return _attend(socket.socket(fileno=files[0]), files[1:])
        for file in files:
            os.close(file)


def _attend(caller: socket.socket, standard: Sequence[int]) -> None:
    """Send the process id and the exit status of the command to the caller; return only in the process of the command."""
    arguments, folder, environment, own_group = json.loads(caller.makefile("r").readline())
    if pid := os.fork():
        for file in standard:
            os.close(file)
        if own_group:
            os.setpgid(pid, pid)
        with contextlib.suppress(BrokenPipeError):  # the process that started the command has ended
            caller.sendall(b"%d\n" % pid)
            caller.sendall(b"%d\n" % os.waitpid(pid, 0)[1])
        os._exit(0)
    caller.close()
    for number, file in enumerate(standard):
        os.dup2(file, number)
        os.close(file)
    if own_group:
        os.setpgid(0, 0)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    script = Path(arguments[0])
    Path("/proc/self/comm").write_text(script.name)
    sys.argv = arguments
    sys.path[0] = str(script.parent)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
    runpy.run_path(sys.argv[0], run_name="__main__")
