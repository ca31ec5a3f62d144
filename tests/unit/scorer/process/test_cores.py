"""How many workers a machine, or a container's quota, has room for."""

from pathlib import Path

import pytest

from scorer.process.cores import affinity, allowed, quotas, whole


def files(root: Path, **content: str) -> Path:
    """Files under a root, by path."""
    for path, text in content.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


@pytest.mark.parametrize(
    ("cores", "limits", "expected"),
    [(8, [], 8), (8, [2.0], 2), (8, [3.9, 64.0], 3), (8, [0.5], 1), (2, [4.0], 2), (1, [0.01], 1)],
)
def test_a_quota_is_rounded_down_and_one_core_is_always_there(cores: int, limits: list[float], expected: int) -> None:
    assert whole(cores, limits) == expected


def test_quotas_of_version_2_are_those_of_the_group_and_of_all_above_it(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/pods/scorer"
    root = files(
        tmp_path,
        **{
            "proc/self/cgroup": "0::/pods/scorer\n",
            f"{group}/cpu.max": "max 100000\n",
            "sys/fs/cgroup/pods/cpu.max": "250000 100000\n",
        },
    )
    assert list(quotas(root)) == [2.5]
    assert allowed(root) == min(affinity(), 2)


def test_within_a_container_the_group_is_the_mount_itself(tmp_path: Path) -> None:
    root = files(tmp_path, **{"proc/self/cgroup": "0::/../../kube/abc\n", "sys/fs/cgroup/cpu.max": "100000 100000\n"})
    assert list(quotas(root)) == [1.0]
    assert allowed(root) == 1


def test_quotas_of_version_1(tmp_path: Path) -> None:
    root = files(
        tmp_path,
        **{
            "proc/self/cgroup": "5:memory:/x\n4:cpu,cpuacct:/x\n",
            "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "150000\n",
            "sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
    )
    assert list(quotas(root)) == [1.5]


def test_without_control_groups_there_is_no_quota(tmp_path: Path) -> None:
    assert list(quotas(tmp_path)) == []
    assert allowed(tmp_path) == affinity()
