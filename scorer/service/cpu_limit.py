"""How many cores this process may use: its CPU affinity, and what the quotas of its control groups leave of it (Linux)."""

import os
from collections.abc import Iterator
from pathlib import Path


def allowed(root: Path = Path("/")) -> int:
    """Whole cores that this process may keep busy, at least 1: one process more than a quota allows would only be throttled.
    `root` is where `proc` and `sys` are."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(min([float(cores), *_quotas(root)])))


def _quotas(root: Path) -> Iterator[float]:
    """The CPU quota, in cores, of each control group that this process is in, from its own up (version 2, then version 1)."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            for folder in _upwards(root / "sys/fs/cgroup", path):
                yield from _quota(*(_read(folder / "cpu.max").split() or ["max", "1"]))
        elif "cpu" in controllers.split(","):
            for folder in _upwards(root / "sys/fs/cgroup/cpu", path):
                yield from _quota(_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us"))


def _upwards(mount: Path, path: str) -> Iterator[Path]:
    """The group's folder, and those above it up to the mount. Within a container only the mount itself may be there."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for depth in range(len(parts), -1, -1):
        yield mount.joinpath(*parts[:depth])


def _quota(quota: str, period: str) -> Iterator[float]:
    """Microseconds of CPU in each period; `max`, -1 and nothing at all mean that there is no limit."""
    if quota.strip().isdigit() and period.strip().isdigit():
        yield int(quota) / int(period)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
