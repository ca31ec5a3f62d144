"""Measures the free memory of this machine or container, and limits the memory growth of one process."""

# A process that exceeds its own limit gets a failed allocation. If the processes of a container exceed the container's limit,
# the kernel kills processes; on Kubernetes it kills every process of the container (`memory.oom.group`).

import resource
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")
KIBIBYTE = 1024
HUGE = 1 << 60  # a cgroup without a limit states a number larger than any memory, or `max`


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of a machine or control group in bytes.

    Attributes:
        limit: The most memory that all processes in the machine or group together may use.
        used: The memory that these processes use now, without memory that the kernel can reclaim.
    """

    limit: int
    used: int

    @property
    def free(self) -> int:
        """The bytes that the processes of the machine or group may still allocate."""
        return max(0, self.limit - self.used)


def container_memory(root: Path = ROOT) -> Memory:
    """Return the memory of the machine or of one of this process's control groups, whichever has the fewest free bytes."""
    return min([_of_machine(root), *_of_groups(root)], key=lambda memory: memory.free)


def container_limit(root: Path = ROOT) -> int:
    """Return the lowest memory limit in bytes among the machine and the control groups of this process.

    The limit does not depend on the memory in use.
    """
    return min(memory.limit for memory in (_of_machine(root), *_of_groups(root)))


def data_bytes() -> int:
    """Return the bytes of private writable memory of this process, which RLIMIT_DATA limits."""
    return _kibibytes(Path("/proc/self/status"))["VmData"]


def limit_data(more: int) -> None:
    """Let the private memory of this process grow by at most `more` bytes; further allocations fail."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = data_bytes() + more
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def resident_bytes(pid: int) -> int:
    """Return the bytes of resident memory of a process, without pages of files; 0 if the process has ended."""
    try:
        status = _kibibytes(Path(f"/proc/{pid}/status"))
    except (OSError, ValueError):
        return 0
    return status.get("RssAnon", 0) + status.get("RssShmem", 0)


def _of_machine(root: Path) -> Memory:
    read = _kibibytes(root / "proc/meminfo")
    return Memory(read["MemTotal"], read["MemTotal"] - read.get("MemAvailable", read["MemFree"]))


def _of_groups(root: Path) -> Iterator[Memory]:
    """Yield the memory of each control group with a limit, from the process's own group up to the root of the mount."""
    # In a container, the kernel may state the path of the group on the host. If the container has no folder at this path, its
    # group is the root of the mount.
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from _iter_group_limits(root / "sys/fs/cgroup", path, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            names = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
            yield from _iter_group_limits(root / "sys/fs/cgroup/memory", path, *names)


def _iter_group_limits(mount: Path, path: str, limit: str, usage: str, inactive: str) -> Iterator[Memory]:
    group = mount / path.strip("/")
    while True:
        try:
            most = (group / limit).read_text().strip()
            used = int((group / usage).read_text())
            given_back = _pairs(group / "memory.stat").get(inactive, 0)
        except (OSError, ValueError):
            most = "max"
        if most != "max" and int(most) < HUGE:
            yield Memory(int(most), max(0, used - given_back))
        if group == mount:
            return
        group = group.parent


def _pairs(path: Path) -> Mapping[str, int]:
    return {name: int(value) for name, value in (line.split() for line in path.read_text().splitlines())}


def _kibibytes(path: Path) -> Mapping[str, int]:
    """Parse the lines `Name:  123 kB` of a kernel file. Return the values in bytes by name."""
    words = (line.replace(":", " ").split() for line in path.read_text().splitlines())
    return {line[0]: int(line[1]) * KIBIBYTE for line in words if len(line) == 3 and line[2] == "kB"}
