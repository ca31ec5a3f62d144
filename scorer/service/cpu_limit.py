"""The number of usable cores: the CPU affinity, and the quotas of the control groups (Linux)."""

import os
from collections.abc import Iterator
from pathlib import Path


def allowed(root: Path = Path("/")) -> int:
    """Return the whole cores that this process may use, at least 1.

    Another process beyond a quota would only be throttled. `root` is the parent of `proc` and `sys`.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(min([float(cores), *_quotas(root)])))


def _quotas(root: Path) -> Iterator[float]:
    """Yield the CPU quota in cores of each control group of this process, from its own up (version 2, then version 1)."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            for folder in _upwards(root / "sys/fs/cgroup", path):
                yield from _quota(*(_read(folder / "cpu.max").split() or ["max", "1"]))
        elif "cpu" in controllers.split(","):
            for folder in _upwards(root / "sys/fs/cgroup/cpu", path):
                yield from _quota(_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us"))


def _upwards(mount: Path, path: str) -> Iterator[Path]:
    """Yield the group's folder and its parents up to the mount. In a container only the mount itself may exist."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for depth in range(len(parts), -1, -1):
        yield mount.joinpath(*parts[:depth])


def _quota(quota: str, period: str) -> Iterator[float]:
    """Yield the quota: microseconds of CPU per period; `max`, -1 and an empty value mean no limit."""
    if quota.strip().isdigit() and period.strip().isdigit():
        yield int(quota) / int(period)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
