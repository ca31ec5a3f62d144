"""The machine: the core of the scorer, the cores of all other programs, and the CPU time and memory of a process."""

import contextlib
import os
import platform
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

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
        """Give the last core to the scorer. Raises ValueError if there is only one."""
        if len(available) < 2:
            raise ValueError("two cores are needed: one for the scorer, one for the broker and the load")
        scorer = max(available)
        return cls(scorer, frozenset(available - {scorer}))

    def pinned(self, *command: str) -> list[str]:
        return ["taskset", "-c", str(self.scorer), *command]


def description() -> dict[str, object]:
    cpu = [line.partition(":")[2].strip() for line in _lines(Path("/proc/cpuinfo")) if line.startswith("model name")]
    return {
        "cpu": cpu[0] if cpu else platform.machine(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in LIBRARIES},
    }


class Sampler(threading.Thread):
    """Follows a process and its children, its broker, and the cores, ten times a second until `stop`.

    A sample has the Unix seconds, then the CPU seconds so far of the process, of all programs on its core, of all programs on
    the other cores, and of the broker.
    """

    def __init__(self, pid: int, broker: int, cores: Cores) -> None:
        super().__init__(name="sampler", daemon=True)
        self._pid = pid
        self._broker = broker
        self._cores = cores
        self._samples: list[tuple[float, float, float, float, float]] = []
        self._stopping = threading.Event()
        self.start()

    def stop(self) -> None:
        self._stopping.set()
        self.join()

    def usage(self, start: float, end: float, events: float) -> dict[str, float]:
        """Return CPU microseconds per event between two Unix times, by interpolation, and the load of the cores.

        `broker_cpu_us_per_event` is the cost of the broker, load and readers included. `others_on_core` is the share of the
        scorer's core that other programs used, `rest_busy` the used share of the other cores (the broker, the load). If it is
        near 1, the broker limits the measurement. If the broker may use all cores, `others_on_core` includes the broker and the
        load, and `rest_busy` the scorer.
        """
        times, *columns = np.array(self._samples).T
        seconds = max(end - start, 1e-3)
        process, core, rest, broker = (float(np.diff(np.interp([start, end], times, column))[0]) for column in columns)
        return {
            "cpu_us_per_event": round(process / max(events, 1) * 1e6, 2),
            "broker_cpu_us_per_event": round(broker / max(events, 1) * 1e6, 2),
            "others_on_core": round(max(0.0, core - process) / seconds, 3),
            "rest_busy": round(rest / seconds / len(self._cores.others), 3),
        }

    def run(self) -> None:
        while not self._stopping.wait(SAMPLE_SECONDS):
            try:
                process, broker, core_times = cpu_seconds(self._pid), cpu_seconds(self._broker), psutil.cpu_times(percpu=True)
                rest = sum(_busy(core_times[number]) for number in self._cores.others)
                self._samples.append((time.time(), process, _busy(core_times[self._cores.scorer]), rest, broker))
            except psutil.NoSuchProcess:
                return


def _busy(times: Any) -> float:
    """Return the seconds in which a core was not idle."""
    return float(times.user + times.nice + times.system + times.irq + times.softirq + times.steal)


def family(pid: int) -> list[psutil.Process]:
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def cpu_seconds(pid: int) -> float:
    """Return the user and system time of a process and its descendants so far.

    Raises:
        psutil.NoSuchProcess: the process itself has ended.
    """
    return time_used(family(pid))


def time_used(processes: Iterable[psutil.Process]) -> float:
    """Return the user and system time so far of the processes that have not ended.

    A descendant of a scorer may end at any time: a trial process ends after it has loaded a model.
    """
    seconds = 0.0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            seconds += sum(process.cpu_times()[:2])
    return seconds


def memory(pid: int) -> dict[str, float]:
    """Return the resident and the proportional memory (PSS) of a process and its descendants, in MiB.

    The resident memory excludes the parent of a scorer, which shares nearly all of its memory with its workers.
    """
    infos = [process.memory_full_info() for process in family(pid)]
    resident = sum(m.rss for m in infos[1:] or infos)
    return {"rss_mib": round(resident / 2**20, 1), "pss_mib": round(sum(m.pss for m in infos) / 2**20, 1)}


def status_mib(key: str, pid: int | str = "self") -> float:
    """Return a figure of a process in MiB (proc(5), /proc/pid/status)."""
    return int(next(line for line in _lines(Path(f"/proc/{pid}/status")) if line.startswith(key)).split()[1]) / 1024


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.is_file() else []
