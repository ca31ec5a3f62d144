"""The free memory of a container, from the kernel's files, and a limit that fails an allocation."""

import multiprocessing
import os
from pathlib import Path

import pytest

from model_registry import memory_limits
from model_registry.memory_limits import Memory

GIBIBYTE = 1 << 30
MEMINFO = f"MemTotal: {64 << 20} kB\nMemFree: {1 << 20} kB\nMemAvailable: {48 << 20} kB\nHugePages_Total: 0\n"
MACHINE = Memory(64 * GIBIBYTE, 16 * GIBIBYTE)
Files = dict[str, object]
V1 = "sys/fs/cgroup/memory/pod"
V2 = "sys/fs/cgroup/pod"


def root(folder: Path, files: Files) -> Path:
    for name, content in {"proc/meminfo": MEMINFO, **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return folder


@pytest.mark.parametrize(
    ("files", "container"),
    [
        ({}, MACHINE),
        (
            {
                "proc/self/cgroup": "0::/pod/scorer",
                f"{V2}/memory.max": 4 * GIBIBYTE,
                f"{V2}/memory.current": 3 * GIBIBYTE,
                f"{V2}/memory.stat": f"anon 5\ninactive_file {GIBIBYTE}",
                f"{V2}/scorer/memory.max": "max",
                f"{V2}/scorer/memory.current": GIBIBYTE,
                f"{V2}/scorer/memory.stat": "inactive_file 0",
            },
            Memory(4 * GIBIBYTE, 2 * GIBIBYTE),
        ),
        (
            {
                "proc/self/cgroup": "3:cpu,cpuacct:/\n4:memory:/host/path/that/is/not/here",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": 2 * GIBIBYTE,
                "sys/fs/cgroup/memory/memory.usage_in_bytes": GIBIBYTE,
                "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 0",
            },
            Memory(2 * GIBIBYTE, GIBIBYTE),
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/pod",
                f"{V1}/memory.limit_in_bytes": 0x7FFFFFFFFFFFF000,
                f"{V1}/memory.usage_in_bytes": GIBIBYTE,
                f"{V1}/memory.stat": "",
            },
            MACHINE,
        ),
    ],
)
def test_the_container_s_memory_is_that_of_the_tightest_group_or_of_the_machine(
    tmp_path: Path, files: Files, container: Memory
) -> None:
    assert memory_limits.container_memory(root(tmp_path, files)) == container
    assert memory_limits.container_limit(tmp_path) == container.limit


def _allocate(limit: int, size: int) -> None:
    memory_limits.limit_data(limit)
    try:
        bytearray(size)
    except MemoryError:
        os._exit(3)
    os._exit(0)


@pytest.mark.parametrize(("size", "code"), [(10 << 20, 0), (100 << 20, 3)])
def test_a_process_beyond_its_limit_cannot_allocate(size: int, code: int) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_allocate, args=(50 << 20, size))
    process.start()
    process.join()
    assert process.exitcode == code


def test_the_resident_memory_of_a_process_is_read_and_of_no_process_is_none() -> None:
    assert memory_limits.resident_bytes(os.getpid()) > 10 << 20
    assert memory_limits.resident_bytes(2**22 + 1) == 0
