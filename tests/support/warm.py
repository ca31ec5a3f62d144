"""Runs the installed commands as processes of their own that need not import: a process that has imported them forks for each.

A command has its own folder, environment, output and exit code, as from a shell; half a second of CPU time is saved on each.
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

from tests.support.waiting import STEP_SECONDS

PROGRAMS = {"scorer": "scorer.cli", "publisher": "publisher.cli", "model-registry": "model_registry.cli"}
USED_LATER = ("httpx", "model_registry.onnx_tools.onnx_reader", "model_registry.package", "model_registry.stores.open")
"""What commands import in their functions; not ONNX Runtime, which has threads from then on."""


def run(arguments: Sequence[str], cwd: Path | None = None, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """A command of ours, run to its end. Raises TimeoutError where it goes on for too long."""
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
    """What hears of each command. It ends with this process."""
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-m", "tests.support.warm", str(theirs.fileno())]
        alone = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
        subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=alone)
    return ours


def _serve(control: socket.socket) -> None:
    """Fork for each command; returns in its process, with its arguments in place."""
    for name in PROGRAMS.values():
        places = getattr(importlib.import_module(name), "VERBS", {}).values()
        for place in places:
            if isinstance(place, str):
                importlib.import_module(place.partition(":")[0])
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
    """Tell the caller the command's process and how it ended; returns in that process."""
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
