"""The number of cores that a machine, or the quota of a container, allows."""

import os
from pathlib import Path

import pytest

from scorer.service.cpu_limit import count_usable_cores

CASES: dict[str, tuple[int, dict[str, str], int]] = {
    "no control groups": (8, {}, 8),
    "no quota": (8, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, 8),
    "rounded down": (8, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "390000 100000\n"}, 3),
    "one core is always there": (8, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "1000 100000\n"}, 1),
    "fewer cores than the quota": (2, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "400000 100000\n"}, 2),
    "of a group above": (
        8,
        {
            "proc/self/cgroup": "0::/pods/scorer\n",
            "sys/fs/cgroup/pods/scorer/cpu.max": "max 100000\n",
            "sys/fs/cgroup/pods/cpu.max": "250000 100000\n",
        },
        2,
    ),
    "the mount itself, within a container": (
        8,
        {"proc/self/cgroup": "0::/../../kube/abc\n", "sys/fs/cgroup/cpu.max": "100000 100000\n"},
        1,
    ),
    "version 1": (
        8,
        {
            "proc/self/cgroup": "5:memory:/x\n4:cpu,cpuacct:/x\n",
            "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "350000\n",
            "sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
        3,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_workers_are_as_many_as_cores_and_quotas_allow(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cores, files, expected = CASES[case]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(cores))
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert count_usable_cores(tmp_path) == expected
