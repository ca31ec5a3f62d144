"""A link of a given round trip between this network namespace and a new one, with TCP's own windows on it.

    python -m tests.benchmarks.bench.relay.link ROUND_TRIP_MS

Creates a namespace and a TUN device in each, and forwards packets between them, each delayed by half the round trip (`tc netem`
is not in every kernel). Prints `ready`, then obeys `cut` and `heal` on stdin, and ends with it. Needs root. `Link` runs this
module as a process.
"""

import contextlib
import ctypes
import fcntl
import os
import select
import shutil
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Self

NEAR, FAR = "10.213.77.1", "10.213.77.2"
TUN = Path("/dev/net/tun")
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
CLONE_NEWNET = 0x40000000
MTU = 9_000  # bytes: fewer packets for the process that forwards them
QUEUE = 10_000  # packets that wait in a device
READ_AT_ONCE = 64
libc = ctypes.CDLL(None, use_errno=True)


def missing() -> str:
    """Return the missing requirement of a link, or an empty string."""
    if os.geteuid() != 0:
        return "needs root, to make a network namespace"
    if not TUN.exists():
        return f"needs {TUN}"
    return "" if shutil.which("ip") else "needs ip: apt-get install -y --no-install-recommends iproute2"


class Link:
    """A running link; `inside` enters the far side."""

    def __init__(self, round_trip_ms: float) -> None:
        command = [sys.executable, "-m", "tests.benchmarks.bench.relay.link", str(round_trip_ms)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "ready":
            raise RuntimeError("no link: see above")

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Create processes, threads and sockets of this block on the far side; for this thread only."""
        near_namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        far_namespace = os.open(f"/proc/{self._process.pid}/ns/net", os.O_RDONLY)
        try:
            _call(libc.setns(far_namespace, CLONE_NEWNET))
            yield
        finally:
            _call(libc.setns(near_namespace, CLONE_NEWNET))
            os.close(near_namespace)
            os.close(far_namespace)

    def cut(self) -> None:
        self._send("cut")

    def heal(self) -> None:
        self._send("heal")

    def close(self) -> None:
        """End the process, which removes devices and namespace."""
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")


def main() -> None:
    delay = float(sys.argv[1]) / 2_000
    near = _device(NEAR)
    _call(libc.unshare(CLONE_NEWNET))
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    far = _device(FAR)
    print("ready", flush=True)
    _carry({near: far, far: near}, delay)


def _device(address: str) -> int:
    """Create a TUN device in this namespace with one of the link's addresses, and set it up."""
    device = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
    reply = fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", b"far-link%d", IFF_TUN | IFF_NO_PI))
    name = reply[:16].rstrip(b"\0").decode()
    subprocess.run(["ip", "address", "add", f"{address}/30", "dev", name], check=True)
    subprocess.run(["ip", "link", "set", name, "mtu", str(MTU), "txqueuelen", str(QUEUE), "up"], check=True)
    return device


def _carry(ways: dict[int, int], delay: float) -> None:
    """Forward packets until stdin ends. Both directions have the same delay, so that one queue is in order."""
    waiting: deque[tuple[float, int, bytes]] = deque()
    passing = True
    while True:
        wait = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        readable, _, _ = select.select([*ways, sys.stdin], [], [], wait)
        now = time.monotonic()
        for device in ways:
            if device in readable:
                arrived = _packets(device)
                waiting.extend((now + delay, ways[device], packet) for packet in arrived if passing)
        while waiting and waiting[0][0] <= now:
            _, device, packet = waiting.popleft()
            with contextlib.suppress(OSError):  # a full queue drops, as links do
                os.write(device, packet)
        if sys.stdin in readable:
            if not (line := sys.stdin.readline()):
                return
            passing = line.strip() == "heal"
            waiting.clear()


def _packets(device: int) -> list[bytes]:
    packets = []
    with contextlib.suppress(BlockingIOError):
        for _ in range(READ_AT_ONCE):
            packets.append(os.read(device, MTU))
    return packets


def _call(answer: int) -> None:
    if answer != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    main()
