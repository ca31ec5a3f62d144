"""An HTTP server for probes and metrics with bounded cost: one thread, one request per connection, few file descriptors.

The server depends on sockets alone and must not block: an idle, slow or hostile client never delays the answer to another
client.
"""

import contextlib
import enum
import logging
import os
import resource
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

log = logging.getLogger(__name__)

CONNECTIONS = 64  # the largest number of simultaneous connections
DESCRIPTOR_SHARE = 8  # connections take at most one eighth of the file descriptors that the process may open
MIN_CONNECTIONS = 4  # the limit is not lower than this
READ_SECONDS = 5.0  # from the accepted connection to the end of the request's head
WRITE_SECONDS = 10.0  # for sending the response
LINGER_SECONDS = 1.0  # for the client's close: a close with unread bytes would reset the connection and lose the response
HEAD_BYTES = 16_384
ACCEPTS = 8  # the most connections that are accepted before the accepted ones are read, so that they do not evict each other
BACKLOG = 1_024
RESERVE = 8  # descriptors that are kept open, to be released when the process has no other left
PAUSE_SECONDS = 0.1  # without accepting connections, if the process has no descriptor left
WARN_SECONDS = 60.0
CLOSE_SECONDS = 1.0  # for the end of the thread, which never blocks
TOO_LARGE = b"HTTP/1.0 431 Request Header Fields Too Large\r\nConnection: close\r\n\r\n"

Answer = Callable[[bytes, tuple[str, int]], bytes]
"""Returns the complete response, from the head of the request and the address of the client. It must not block."""


def connection_limit(descriptors: int) -> int:
    """Return the connection limit of a process that may open `descriptors` file descriptors."""
    if descriptors == resource.RLIM_INFINITY:
        return CONNECTIONS
    return min(CONNECTIONS, max(MIN_CONNECTIONS, descriptors // DESCRIPTOR_SHARE))


class _State(enum.Enum):
    READING = enum.auto()
    WRITING = enum.auto()
    LINGERING = enum.auto()


@dataclass(eq=False, slots=True)
class _Connection:
    """The connection of one client.

    Attributes:
        socket: the socket.
        address: the address of the client.
        deadline: when the server closes the connection if its state has not changed (monotonic seconds).
        state: whether the server reads the request, writes the response, or waits for the client to close the connection.
        head: the received part of the request's head (request line and headers).
        answer: the part of the response that is not written yet.
    """

    socket: socket.socket
    address: tuple[str, int]
    deadline: float
    state: _State = _State.READING
    head: bytearray = field(default_factory=bytearray)
    answer: memoryview = field(default_factory=lambda: memoryview(b""))


class BoundedHttpServer:
    """Serves HTTP requests at an address until `close`, in a thread of its own. The function `answer` returns the responses.

    At the largest number of connections, a new connection replaces an old one. The constructor raises OSError or OverflowError
    if it cannot listen at the address.
    """

    # The oldest connection to which no response is being written is replaced first. Some file descriptors are kept in reserve,
    # so that a probe is answered even if the rest of the process uses all others.

    def __init__(self, host: str, port: int, answer: Answer, read_seconds: float = READ_SECONDS) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._answer = answer
        self._read_seconds = read_seconds
        self._limit = connection_limit(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self._open: dict[_Connection, None] = {}  # in the order in which they were accepted
        self._reserve: list[int] = []
        self._restore_reserve()
        self._paused_until: float | None = None
        self._warn_at = 0.0
        self._closing = False
        self._wake, self._woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close all connections and stop listening."""
        self._closing = True
        with contextlib.suppress(OSError):  # closed before
            self._wake.send(b"\0")
        self._thread.join(CLOSE_SECONDS)
        self._wake.close()  # not in the thread, which may end before the byte is sent

    def _serve(self) -> None:
        while not self._closing:
            ready = self._selector.select(self._wait(time.monotonic()))
            for key, _ in ready:
                if isinstance(key.data, _Connection):
                    self._step(key.data)
            if any(key.fileobj is self._listener for key, _ in ready):
                self._accept()
            self._expire(time.monotonic())
        for connection in list(self._open):
            self._drop(connection)
        for descriptor in self._reserve:
            os.close(descriptor)
        self._selector.close()
        for channel in (self._listener, self._woken):
            channel.close()

    def _wait(self, now: float) -> float | None:
        """Return the seconds until the server must act next; None if it waits only for sockets."""
        # It must act at the next deadline of a connection, and at the end of a pause in accepting.
        deadlines = [connection.deadline for connection in self._open]
        if self._paused_until is not None:
            deadlines.append(self._paused_until)
        return max(0.0, min(deadlines) - now) if deadlines else None

    def _expire(self, now: float) -> None:
        for connection in [candidate for candidate in self._open if candidate.deadline <= now]:
            self._drop(connection)
        if self._paused_until is not None and self._paused_until <= now:
            self._paused_until = None
            self._restore_reserve()
            self._selector.register(self._listener, selectors.EVENT_READ)

    def _accept(self) -> None:
        for _ in range(ACCEPTS):
            try:
                accepted, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._make_room(error)
                return
            if len(self._open) >= self._limit:
                self._evict(f"the limit of {self._limit} connections is reached")
            accepted.setblocking(False)
            connection = _Connection(accepted, address[:2], time.monotonic() + self._read_seconds)
            self._open[connection] = None
            self._selector.register(accepted, selectors.EVENT_READ, connection)
            self._step(connection)  # usually the request has arrived too, and is answered before an eviction

    def _make_room(self, error: OSError) -> None:
        """Free a file descriptor after accepting has failed with `error`, or pause accepting if there is none to free."""
        # The pause prevents this thread from spinning.
        if self._reserve:
            os.close(self._reserve.pop())
        elif self._open:
            self._evict(f"no connection can be accepted ({error.strerror})")
        else:
            self._warn(f"no connection can be accepted: {error.strerror}")
            self._selector.unregister(self._listener)
            self._paused_until = time.monotonic() + PAUSE_SECONDS

    def _evict(self, reason: str) -> None:
        self._warn(f"{reason}: the oldest connections are closed to accept new ones")
        waiting = (candidate for candidate in self._open if candidate.state is not _State.WRITING)
        self._drop(next(waiting, next(iter(self._open))), restore=False)

    def _warn(self, text: str) -> None:
        now = time.monotonic()
        if now >= self._warn_at:
            self._warn_at = now + WARN_SECONDS
            log.warning("health port %d: %s", self.port, text)

    def _step(self, connection: _Connection) -> None:
        """Read the request or write the response of a connection, as far as possible without blocking."""
        if connection not in self._open:
            return
        try:
            match connection.state:
                case _State.READING:
                    self._read(connection)
                case _State.WRITING:
                    self._write(connection)
                case _State.LINGERING:
                    if not connection.socket.recv(HEAD_BYTES):
                        self._drop(connection)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._drop(connection)
        except Exception:
            log.exception("health port %d: a request could not be answered", self.port)
            self._drop(connection)

    def _read(self, connection: _Connection) -> None:
        received = connection.socket.recv(HEAD_BYTES)
        if not received:
            self._drop(connection)
            return
        connection.head += received
        if b"\r\n\r\n" in connection.head or b"\n\n" in connection.head:
            connection.answer = memoryview(self._answer(bytes(connection.head), connection.address))
        elif len(connection.head) > HEAD_BYTES:
            connection.answer = memoryview(TOO_LARGE)
        else:
            return
        connection.state = _State.WRITING
        connection.deadline = time.monotonic() + WRITE_SECONDS
        connection.head.clear()
        self._selector.modify(connection.socket, selectors.EVENT_WRITE, connection)
        self._write(connection)

    def _write(self, connection: _Connection) -> None:
        sent = connection.socket.send(connection.answer)
        connection.answer = connection.answer[sent:]
        if connection.answer:
            return
        connection.socket.shutdown(socket.SHUT_WR)
        connection.state = _State.LINGERING
        connection.deadline = time.monotonic() + LINGER_SECONDS
        self._selector.modify(connection.socket, selectors.EVENT_READ, connection)

    def _drop(self, connection: _Connection, *, restore: bool = True) -> None:
        """Close a connection. If `restore` is True, refill the reserve of file descriptors."""
        del self._open[connection]
        self._selector.unregister(connection.socket)
        with contextlib.suppress(OSError):
            connection.socket.close()
        if restore:
            self._restore_reserve()

    def _restore_reserve(self) -> None:
        with contextlib.suppress(OSError):
            while len(self._reserve) < RESERVE:
                self._reserve.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
