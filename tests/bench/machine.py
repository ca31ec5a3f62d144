"""The machine: which core the scorer has and which everything else, and how a process is read while it is measured."""

import os
import platform
import threading
import time
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

import numpy as np
import psutil

SAMPLE_SECONDS = 0.1
LIBRARIES = ("confluent-kafka", "numpy", "onnxruntime", "msgspec", "orjson")


@dataclass(frozen=True, slots=True)
class Cores:
    """Core numbers: one for the scorer, the others for broker, load and readers."""

    scorer: int
    others: frozenset[int]

    @classmethod
    def split(cls, available: set[int]) -> "Cores":
        """The last core is the scorer's. Raises ValueError where there is only one."""
        if len(available) < 2:
            raise ValueError("two cores are needed: one for the scorer, one for the broker and the load")
        scorer = max(available)
        return cls(scorer, frozenset(available - {scorer}))

    def pinned(self, *command: str) -> list[str]:
        """The command, on the scorer's core."""
        return ["taskset", "-c", str(self.scorer), *command]


def description() -> dict[str, object]:
    """What figures were taken on."""
    cpu = [line.partition(":")[2].strip() for line in _lines(Path("/proc/cpuinfo")) if line.startswith("model name")]
    return {
        "cpu": cpu[0] if cpu else platform.machine(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in LIBRARIES},
    }


@dataclass(slots=True)
class Sampler:
    """Follows a process and its children: (Unix seconds, CPU seconds so far) ten times a second, until `stop`."""

    pid: int
    samples: list[tuple[float, float]] = field(default_factory=list)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> "Sampler":
        """Begin."""
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Take no more samples."""
        self._stopping.set()
        if self._thread:
            self._thread.join()

    def cpu_seconds(self, start: float, end: float) -> float:
        """CPU seconds spent between two Unix times, by interpolation."""
        times, cpu = np.array(self.samples).T
        spent = np.interp([start, end], times, cpu)
        return float(spent[1] - spent[0])

    def _run(self) -> None:
        while not self._stopping.wait(SAMPLE_SECONDS):
            try:
                self.samples.append((time.time(), cpu_seconds(self.pid)))
            except psutil.NoSuchProcess:
                return


def family(pid: int) -> list[psutil.Process]:
    """A process and its descendants."""
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and its descendants so far."""
    return sum(sum(process.cpu_times()[:2]) for process in family(pid))


def memory(pid: int) -> dict[str, float]:
    """MiB: resident, and proportional (what is shared is divided by those who share it), of a process and its descendants."""
    found = [process.memory_full_info() for process in family(pid)]
    return {"rss_mib": round(sum(m.rss for m in found) / 2**20, 1), "pss_mib": round(sum(m.pss for m in found) / 2**20, 1)}


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.is_file() else []
