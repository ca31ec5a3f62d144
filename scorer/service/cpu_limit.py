"""Determine the number of usable cores from the CPU affinity and the quotas of the control groups (Linux)."""

import os
from collections.abc import Iterator
from pathlib import Path


def count_usable_cores(root: Path = Path("/")) -> int:
    """Return the number of whole cores that this process may use, at least 1.

    Args:
        root: the folder that contains `proc` and `sys`.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(min([float(cores), *_quotas(root)])))


def _quotas(root: Path) -> Iterator[float]:
    """Yield the CPU quotas, in cores, of this process's control group and of its parent groups (cgroup versions 1 and 2)."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            for folder in _upwards(root / "sys/fs/cgroup", path):
                yield from _quota(*(_read(folder / "cpu.max").split() or ["max", "1"]))
        elif "cpu" in controllers.split(","):
            for folder in _upwards(root / "sys/fs/cgroup/cpu", path):
                yield from _quota(_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us"))


def _upwards(mount: Path, path: str) -> Iterator[Path]:
    """Yield the folder of the control group `path`, then its parent folders, up to the mount point.

    In a container, often only the mount point itself exists.
    """
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for depth in range(len(parts), -1, -1):
        yield mount.joinpath(*parts[:depth])


def _quota(quota: str, period: str) -> Iterator[float]:
    """Yield the quota in cores; nothing if there is no limit (`max`, -1 or empty).

    `quota` and `period` are in microseconds.
    """
    if quota.strip().isdigit() and period.strip().isdigit():
        yield int(quota) / int(period)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
