"""The installed commands as processes: started with a log of their own, asked over HTTP, sent signals."""

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
from tests.support.waiting import STEP_SECONDS, until

NO_ANSWER = 0
LISTENING = "health and metrics on "
"""The words before the address in a service's log."""


def command(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def free_port() -> int:
    """A loopback port that nothing listens on now and that no connection is given before a server listens there."""
    return free_ports()[0]


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Program:
    """A command that goes on until it is stopped. It is a process group of its own."""

    def __init__(
        self, arguments: Sequence[str], log: Path, environment: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> None:
        self.log = log
        with log.open("ab") as said:
            self.process = subprocess.Popen(
                arguments,
                stdout=said,
                stderr=said,
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
        """SIGTERM to the first process; its exit code."""
        self.process.terminate()
        return self.wait()

    def wait(self) -> int:
        """Its exit code, once it ends by itself."""
        return self.process.wait(STEP_SECONDS)


class Service(Program):
    """A command that serves health and metrics."""

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.said.splitlines() if line.startswith("{")]

    @property
    def address(self) -> str:
        """Where it serves health and metrics, `http://host:port`."""
        until(lambda: LISTENING in self.said or self.process.poll() is not None, "the address in the log")
        return self.said.rpartition(LISTENING)[2].split('"')[0].split()[0]

    @property
    def endpoint(self) -> str:
        return self.address.removeprefix("http://")

    def get(self, path: str) -> tuple[int, str]:
        """Return status and body of the answer; status 0 without an answer, as from a worker that is being restarted."""
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
        """Wait until it is ready. Raises AssertionError, with its log, if it ends instead."""
        until(lambda: self.process.poll() is not None or self.get("/readyz")[0] == 200, "readiness")
        assert self.process.poll() is None, self.said
        return self
