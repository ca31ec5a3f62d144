"""How much memory this machine, or this container, has left; and a limit for what one process may add.

A limit that is below the container's fires as a failed allocation in one process. The container's own limit kills: on
Kubernetes every process of the container (`memory.oom.group`).
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
    """`limit`: what all processes together may use; `used`: what they use, without what the kernel would give back. Bytes."""

    limit: int
    used: int

    @property
    def free(self) -> int:
        """What can still be used."""
        return max(0, self.limit - self.used)


def container_memory(root: Path = ROOT) -> Memory:
    """The memory of the tightest control group around this process (v1 or v2), or of the machine if that has less free."""
    return min([_of_machine(root), *_of_groups(root)], key=lambda memory: memory.free)


def container_limit(root: Path = ROOT) -> int:
    """The bytes that the smallest control group around this process, or the machine, can have: the same at every call."""
    return min(memory.limit for memory in (_of_machine(root), *_of_groups(root)))


def data_bytes() -> int:
    """The private writable memory of this process, which RLIMIT_DATA is about."""
    return _kibibytes(Path("/proc/self/status"))["VmData"]


def limit_data(more: int) -> None:
    """From now on this process may have so many more bytes of private memory: beyond that allocations fail."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = data_bytes() + more
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def resident_bytes(pid: int) -> int:
    """The memory of a process that no file backs; 0 if the process has ended."""
    try:
        status = _kibibytes(Path(f"/proc/{pid}/status"))
    except (OSError, ValueError):
        return 0
    return status.get("RssAnon", 0) + status.get("RssShmem", 0)


def _of_machine(root: Path) -> Memory:
    read = _kibibytes(root / "proc/meminfo")
    return Memory(read["MemTotal"], read["MemTotal"] - read.get("MemAvailable", read["MemFree"]))


def _of_groups(root: Path) -> Iterator[Memory]:
    """Every limit on the way up. In a container the path may be the host's; its own group is the mount itself."""
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
            most, used = (group / limit).read_text().strip(), int((group / usage).read_text())
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
    """The lines `Name:  123 kB` of a file of the kernel, in bytes."""
    words = (line.replace(":", " ").split() for line in path.read_text().splitlines())
    return {one[0]: int(one[1]) * KIBIBYTE for one in words if len(one) == 3 and one[2] == "kB"}
