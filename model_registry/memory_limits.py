"""The free memory of this machine or container, and a limit for the growth of one process.

A limit below the container's causes a failed allocation in one process. The container's own limit kills: on Kubernetes every
process of the container (`memory.oom.group`).
"""

import resource
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")
KIBIBYTE = 1024
HUGE = 1 << 60  # a cgroup without a limit says a number beyond all memory, or `max`


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory in bytes: `limit` for all processes together, and `used` by them without reclaimable memory."""

    limit: int
    used: int

    @property
    def free(self) -> int:
        """The free bytes."""
        return max(0, self.limit - self.used)


def container_memory(root: Path = ROOT) -> Memory:
    """Return the memory of the tightest control group of this process (v1 or v2), or of the machine if it has less free."""
    return min([_of_machine(root), *_of_groups(root)], key=lambda memory: memory.free)


def container_limit(root: Path = ROOT) -> int:
    """Return the limit of the smallest control group of this process, or of the machine: the same at every call."""
    return min(memory.limit for memory in (_of_machine(root), *_of_groups(root)))


def data_bytes() -> int:
    """Return the private writable memory of this process, which RLIMIT_DATA limits."""
    return _kibibytes(Path("/proc/self/status"))["VmData"]


def limit_data(more: int) -> None:
    """Limit the growth of the private memory of this process; allocations beyond it fail."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = data_bytes() + more
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process without file pages; 0 if the process has ended."""
    try:
        status = _kibibytes(Path(f"/proc/{pid}/status"))
    except (OSError, ValueError):
        return 0
    return status.get("RssAnon", 0) + status.get("RssShmem", 0)


def _of_machine(root: Path) -> Memory:
    read = _kibibytes(root / "proc/meminfo")
    return Memory(read["MemTotal"], read["MemTotal"] - read.get("MemAvailable", read["MemFree"]))


def _of_groups(root: Path) -> Iterator[Memory]:
    """Yield every limit on the path to the root.

    In a container the path may be the host's; its own group is the mount itself.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from _on_the_way(root / "sys/fs/cgroup", path, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            names = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
            yield from _on_the_way(root / "sys/fs/cgroup/memory", path, *names)


def _on_the_way(mount: Path, path: str, limit: str, usage: str, inactive: str) -> Iterator[Memory]:
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
    """Return the lines `Name:  123 kB` of a kernel file in bytes."""
    words = (line.replace(":", " ").split() for line in path.read_text().splitlines())
    return {line[0]: int(line[1]) * KIBIBYTE for line in words if len(line) == 3 and line[2] == "kB"}
