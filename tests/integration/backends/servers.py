"""Real model servers as subprocesses on free loopback ports, each in a virtual environment of its own, made once."""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
from platformdirs import user_cache_path

from tests.integration.backends import models
from tests.support.processes import Program, free_port

START_SECONDS = 60.0
CACHE = user_cache_path("scorestream-tests")
PINNED = {
    "tensorflow": (("tensorflow-cpu==2.21.0",), ("tensorflow-serving-api==2.21.0",)),  # the second without what it asks for
    "mlserver": (("mlserver==1.7.1", "onnxruntime==1.31.1"), ()),
    "triton": (("nvidia-pytriton==0.7.0", "numpy<2", "onnxruntime==1.23.2"), ()),
}


def environment(name: str) -> Path:
    """Return the Python of a server's virtual environment; create the environment if it is incomplete."""
    folder = CACHE / name
    folder.mkdir(parents=True, exist_ok=True)
    python, marker = folder / "bin" / "python", folder / "installed"
    requirements, bare = PINNED[name]
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes
        if not marker.is_file() or marker.read_text() != repr(PINNED[name]):
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            subprocess.run([python, "-m", "pip", "install", "-q", *requirements], check=True)
            if bare:
                subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", *bare], check=True)
            marker.write_text(repr(PINNED[name]))
    return python


class ModelServer:
    """A server that loads models from `folder`. `command(port, folder)` starts it; it can be killed, stopped and slowed."""

    def __init__(self, command: Callable[[int, Path], tuple[Sequence[str], dict[str, str]]], folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.slow_file = folder.parent / f"slow-{self.port}"
        self._command = command
        self._program: Program | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> "ModelServer":
        command, variables = self._command(self.port, self.folder)
        log = self.folder.parent / f"server-{self.port}.log"
        self._program = Program(command, log, {**variables, "SLOW_FILE": str(self.slow_file)})
        with grpc.insecure_channel(self.address) as channel:
            ready = grpc.channel_ready_future(channel)
            until = time.monotonic() + START_SECONDS
            while time.monotonic() < until and not self._program.ended:
                with contextlib.suppress(grpc.FutureTimeoutError):
                    ready.result(timeout=0.5)
                    return self
        self.close()
        raise AssertionError(f"{command[0]} did not start:\n{self._program.said[-3_000:]}")

    def signal(self, number: signal.Signals) -> None:
        assert self._program is not None
        self._program.send(number)

    def kill(self) -> None:
        """kill -9; the port is free when this returns."""
        assert self._program is not None
        self._program.kill()

    def slow(self, seconds: float) -> None:
        self.slow_file.write_text(str(seconds))

    def close(self) -> None:
        if self._program is not None:
            self.kill()


@dataclass(frozen=True)
class Kind:
    """How a kind of server is configured, started and given models."""

    backend: str
    server: Callable[[Path], ModelServer]
    model: Callable[[Path, float], None]


def _mlserver(port: int, folder: Path) -> tuple[Sequence[str], dict[str, str]]:
    variables = {
        "MLSERVER_HOST": "127.0.0.1",
        "MLSERVER_GRPC_PORT": str(port),
        "MLSERVER_HTTP_PORT": str(free_port()),
        "MLSERVER_METRICS_PORT": str(free_port()),
        "MLSERVER_PARALLEL_WORKERS": "0",
        "MLSERVER_DEBUG": "false",
        "PYTHONPATH": str(models.SERVED),
    }
    return (str(environment("mlserver").parent / "mlserver"), "start", str(folder)), variables


def _stand_in(port: int, _: Path) -> tuple[Sequence[str], dict[str, str]]:
    return (str(environment("tensorflow")), str(models.SERVED / "tf_stand_in.py"), str(port)), {"TF_CPP_MIN_LOG_LEVEL": "2"}


def _triton(port: int, folder: Path) -> tuple[Sequence[str], dict[str, str]]:
    packages = environment("triton").parent.parent / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    home = packages / "pytriton" / "tritonserver"
    backend = home / "backends" / "python" / "triton_python_backend_stub"
    if not backend.exists():
        with contextlib.suppress(FileExistsError):
            backend.symlink_to(home / "python_backend_stubs" / f"3.{sys.version_info.minor}" / "triton_python_backend_stub")
    command = (
        str(home / "bin" / "tritonserver"),
        f"--model-repository={folder}",
        "--model-control-mode=explicit",
        f"--backend-directory={home / 'backends'}",
        f"--grpc-port={port}",
        f"--http-port={free_port()}",
        f"--metrics-port={free_port()}",
        "--grpc-address=127.0.0.1",
        "--http-address=127.0.0.1",
    )
    programs = environment("triton").parent
    return command, {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(packages)}


def _saved_model(target: Path, factor: float) -> None:
    models.saved_model(target, factor, environment("tensorflow"))


KINDS = {
    "mlserver": Kind("open-inference", lambda folder: ModelServer(_mlserver, folder), models.mlserver_model),
    "triton": Kind("open-inference", lambda folder: ModelServer(_triton, folder), models.triton_model),
    "tf-serving": Kind("tf-serving", lambda folder: ModelServer(_stand_in, folder), _saved_model),
}
