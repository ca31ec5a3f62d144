"""Run the installed commands as processes: start each with its own log file, query it over HTTP, and send it signals."""

import contextlib
import http
import http.client
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import psutil

from scorer.demo.broker.kraft_config import free_ports
from tests.support import warm
from tests.support.waiting import STEP_SECONDS, until

NO_ANSWER = 0
LISTENING = "health and metrics on "
"""The text before the address in the log of a service."""


def command(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def free_port() -> int:
    """Return a loopback port without a listener, which no outgoing connection gets before a server listens there."""
    return free_ports()[0]


def alive(pid: int) -> bool:
    """Return whether a process runs; a zombie (a process that has ended but was not waited for) does not run."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Program:
    """A command that runs until it is stopped, in its own process group, with its output in the file `log`.

    In a test, an installed command without changed environment variables is forked from a process that has imported it.
    """

    def __init__(
        self, arguments: Sequence[str], log: Path, environment: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> None:
        self.log = log
        self.process: subprocess.Popen[bytes] | warm.ForkedCommand
        with log.open("ab") as output:
            if not environment and warm.is_usable(arguments):
                with Path(os.devnull).open("rb") as stdin:
                    self.process = warm.server().start(arguments, (stdin, output, output), cwd, own_group=True)
                return
            self.process = subprocess.Popen(
                arguments,
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **(environment or {})},
                cwd=cwd,
                process_group=0,
            )

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """Send SIGTERM to the command, but not to its child processes, and return the exit code of the command."""
        self.process.terminate()
        return self.wait()

    def wait(self) -> int:
        """Wait until the command ends, and return its exit code."""
        return self.process.wait(STEP_SECONDS)


class Service(Program):
    """A command that serves health and metrics."""

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.said.splitlines() if line.startswith("{")]

    @property
    def address(self) -> str:
        """The base URL of health and metrics, `http://host:port`, read from the log."""
        until(lambda: LISTENING in self.said or self.process.poll() is not None, "the address in the log")
        return self.said.rpartition(LISTENING)[2].split('"')[0].split()[0]

    @property
    def endpoint(self) -> str:
        return self.address.removeprefix("http://")

    def get(self, path: str) -> tuple[int, str]:
        """Return the status and body of a response; the status is 0 without a response, for example during a restart."""
        try:
            with urllib.request.urlopen(self.address + path, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except (OSError, http.client.HTTPException):
            return NO_ANSWER, ""

    def metric(self, name: str) -> float:
        """Return the sum of a metric's samples over its labels."""
        pages: list[str] = []

        def is_answered() -> bool:
            status, text = self.get("/metrics")
            pages.append(text)
            return status == http.HTTPStatus.OK or self.ended

        until(is_answered, "the metrics")
        assert not self.ended, self.said
        rows = [line.split() for line in pages[-1].splitlines() if line.startswith((name + " ", name + "{"))]
        return sum(float(row[-1]) for row in rows)

    def ready(self) -> Self:
        """Wait until the service is ready. Raises AssertionError with the log of the service if the service ends instead."""
        until(lambda: self.process.poll() is not None or self.get("/readyz")[0] == 200, "readiness")
        assert self.process.poll() is None, self.said
        return self
