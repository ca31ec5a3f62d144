"""A flood of useless connections to one HTTP port, for tests and for a fault campaign."""

import contextlib
import resource
import selectors
import socket
import threading
import time
from collections.abc import Sequence
from enum import StrEnum
from typing import Self

CONNECTIONS = 960
TURN_SECONDS = 0.2
REOPENED = 100  # the maximum number of new connections in each turn after the first, so that other processes get CPU time
SPARE_DESCRIPTORS = 256  # of this process, for the test itself
GIANT = b"GET /livez HTTP/1.1\r\n" + b"".join(b"X-Fill-%d: %s\r\n" % (number, b"x" * 1_000) for number in range(64))
PIPELINED = b"GET /livez HTTP/1.1\r\nHost: flood\r\n\r\n" * 50


class Style(StrEnum):
    """The behaviour of a client of the flood after the client has connected."""

    IDLE = "idle"
    """Do nothing."""
    SLOW = "slow"
    """Send a request byte by byte and never complete the request."""
    HALF_CLOSED = "half-closed"
    """Send the start of a request, then shut down the sending direction of the connection."""
    PIPELINED = "pipelined"
    """Send many requests at once and read no response."""
    GIANT = "giant"
    """Send 64 KB of headers and never complete the request."""


class ConnectionFlood:
    """Keeps `connections` connections to `endpoint` (host:port) open inside a `with` block.

    A connection that the server closes is replaced by a new one. `opened` counts all connections that were ever opened, and
    `closed` counts those that the server closed. `full` is set as soon as `connections` connections have been opened.
    """

    def __init__(self, endpoint: str, connections: int = CONNECTIONS, styles: Sequence[Style] = tuple(Style)) -> None:
        host, _, port = endpoint.rpartition(":")
        self._address = host.strip("[]"), int(port)
        self._connections = connections
        self._styles = styles
        self._open: dict[socket.socket, Style] = {}
        self._selector = selectors.DefaultSelector()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flood", daemon=True)
        self.full = threading.Event()
        self.opened = self.closed = 0

    def __enter__(self) -> Self:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        descriptors = self._connections + SPARE_DESCRIPTORS
        if soft != resource.RLIM_INFINITY and soft < descriptors:
            resource.setrlimit(
                resource.RLIMIT_NOFILE, (descriptors if hard == resource.RLIM_INFINITY else min(descriptors, hard), hard)
            )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join()
        for client in self._open:
            client.close()
        self._selector.close()

    def _run(self) -> None:
        drip_at = 0.0
        while not self._closing.wait(TURN_SECONDS):
            for _ in range(min(self._connections - len(self._open), self._connections if not self.opened else REOPENED)):
                self._connect()
            for key, _ in self._selector.select(0):
                self._check(key.fileobj)  # type: ignore[arg-type]
            if time.monotonic() >= drip_at:
                drip_at = time.monotonic() + 1.0
                for slow in [client for client, style in self._open.items() if style is Style.SLOW]:
                    self._send(slow, b"x")

    def _connect(self) -> None:
        try:
            client = socket.create_connection(self._address, timeout=1.0)
        except OSError:  # the server's accept queue is full, or the server has ended
            return
        client.setblocking(False)
        style = self._styles[self.opened % len(self._styles)]
        self.opened += 1
        self._open[client] = style
        self._selector.register(client, selectors.EVENT_READ)
        if self.opened >= self._connections:
            self.full.set()
        match style:
            case Style.SLOW:
                self._send(client, b"GET /livez HTTP/1.1\r\nX-Slow: ")
            case Style.HALF_CLOSED:
                self._send(client, b"GET /livez HTTP/1.1\r\n")
                with contextlib.suppress(OSError):
                    client.shutdown(socket.SHUT_WR)
            case Style.PIPELINED:
                self._send(client, PIPELINED)
            case Style.GIANT:
                self._send(client, GIANT)

    def _send(self, client: socket.socket, data: bytes) -> None:
        try:
            client.send(data)
        except BlockingIOError:
            return
        except OSError:
            self._forget(client)

    def _check(self, client: socket.socket) -> None:
        """Remove a connection that the server has closed. Responses are read and dropped, except on pipelined connections."""
        if client not in self._open or self._open[client] is Style.PIPELINED:
            with contextlib.suppress(OSError):
                if client.recv(1, socket.MSG_PEEK):
                    return
            self._forget(client)
            return
        try:
            if not client.recv(65_536):
                self._forget(client)
        except BlockingIOError:
            return
        except OSError:
            self._forget(client)

    def _forget(self, client: socket.socket) -> None:
        if self._open.pop(client, None) is not None:
            self.closed += 1
            self._selector.unregister(client)
            client.close()
