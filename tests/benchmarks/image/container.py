"""A container as a strict cluster runs it: no root, only two writable folders, no capabilities, no shell."""

import json
import os
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from tests.benchmarks.image.build import STORAGE

GRACE_SECONDS = 30  # terminationGracePeriodSeconds of the pods in deploy/chart
CACHE = "/var/cache/scorestream"
STRICT = (
    "--network=host",
    "--read-only",
    "--tmpfs=/tmp:size=64m",
    f"--tmpfs={CACHE}:size=256m,mode=1777",
    "--cap-drop=all",
    "--security-opt=no-new-privileges",
    "--ulimit=nofile=4096:4096",
    "--ulimit=nproc=4096:4096",
    "--volume=/dev/null:/usr/bin/dash:ro",
    "--volume=/dev/null:/usr/bin/bash:ro",
)
"""The last two replace the shells by empty files: a program that starts a shell fails."""


def podman(*arguments: str, place: Path | None = None) -> str:
    """Run a podman command in the folder `place`; return its stdout. Raises RuntimeError."""
    command = ["podman", "--runtime", "runc", *arguments]
    completed = subprocess.run(command, cwd=place, env=os.environ | STORAGE, capture_output=True, text=True, check=False)
    if completed.returncode != 0:
        raise RuntimeError(f"{command} ended with {completed.returncode}: {completed.stderr}")
    return completed.stdout


class Container:
    """A container that runs `command`, with `folder` read-only at /etc/scorestream. Leaving the block removes it."""

    def __init__(self, image: str, folder: Path, command: Sequence[str], *limits: str) -> None:
        self.name = f"scorestream-{uuid.uuid4().hex[:8]}"
        volume = f"--volume={folder}:/etc/scorestream:ro"
        self._folder = folder
        podman("run", "--detach", f"--name={self.name}", *STRICT, volume, *limits, image, *command, place=folder)

    def __enter__(self) -> "Container":
        return self

    def __exit__(self, *_: object) -> None:
        podman("rm", "--force", "--time", "0", self.name)

    @property
    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(podman("inspect", "--format", "{{json .State}}", self.name))
        return state

    @property
    def running(self) -> bool:
        return bool(self.state["Running"])

    @property
    def out_of_memory(self) -> bool:
        """Whether the kernel has killed a process of it for memory: the monitor writes a file into the start folder."""
        return (self._folder / "oom").exists()

    @property
    def process(self) -> psutil.Process:
        return psutil.Process(self.state["Pid"])

    @property
    def log_text(self) -> str:
        completed = subprocess.run(
            ["podman", "logs", self.name],
            env=os.environ | STORAGE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return completed.stdout

    def stop(self) -> int:
        """Send SIGTERM, and SIGKILL after the grace period, as the kubelet does; return the exit code."""
        podman("stop", "--time", str(GRACE_SECONDS), self.name)
        return int(self.state["ExitCode"])
