"""Run the installed commands without the time of their imports: a process that has imported them forks for each command.

Each command has its own process, working directory, environment, output and exit code, as if a shell had started it. The fork
saves half a second of CPU time per command.
"""

import functools
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import typer

from tests.support.waiting import STEP_SECONDS

PROGRAMS = {"scorer": "scorer.cli", "publisher": "publisher.cli", "model-registry": "model_registry.cli"}
USED_LATER = ("httpx", "model_registry.onnx_tools.onnx_reader", "model_registry.package", "model_registry.stores.open")
"""Modules that commands import inside functions. ONNX Runtime is not imported before a fork, because its import starts
threads."""


def run(arguments: Sequence[str], cwd: Path | None = None, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run an installed command to its end. Raises TimeoutError if the command runs for more than `STEP_SECONDS`."""
    ours, theirs = socket.socketpair()
    with ours, tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        with theirs:
            socket.send_fds(_warm(), [b"+"], [theirs.fileno(), given.fileno(), out.fileno(), err.fileno()])
        ours.sendall(json.dumps([list(arguments), str(cwd or Path.cwd()), dict(os.environ)]).encode() + b"\n")
        ours.settimeout(STEP_SECONDS)
        told = ours.makefile("r")
        pid = int(told.readline())
        try:
            status = int(told.readline())
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            raise
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(arguments, os.waitstatus_to_exitcode(status), out.read(), err.read())


@functools.cache
def _warm() -> socket.socket:
    """Start the process that forks for each command, and return the socket to this new process.

    The new process ends when the current process ends.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-m", "tests.support.warm", str(theirs.fileno())]
        alone = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
        subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=alone)
    return ours


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
    gc.freeze()
    while True:
        word, files, _, _ = socket.recv_fds(control, 1, 4)
        if not word:
            sys.exit()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            control.close()
            return _attend(socket.socket(fileno=files[0]), files[1:])
        for file in files:
            os.close(file)


def _attend(caller: socket.socket, standard: Sequence[int]) -> None:
    """Send the process id and the exit status of the command to the caller; return only in the process of the command."""
    arguments, folder, environment = json.loads(caller.makefile("r").readline())
    if pid := os.fork():
        caller.sendall(b"%d\n" % pid)
        caller.sendall(b"%d\n" % os.waitpid(pid, 0)[1])
        os._exit(0)
    caller.close()
    for number, file in enumerate(standard):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = arguments


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
    importlib.import_module(PROGRAMS[Path(sys.argv[0]).name]).main()
