"""A small registry that lies: every answer is the test's own, and every request is kept."""

import contextlib
import http.server
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Seen:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""


@dataclass(frozen=True)
class Reply:
    """One answer. A body that is no bytes is sent in chunks; `cut` ends the connection after so many bytes of the body.

    `head` is sent before the status line.
    """

    status: int = 200
    body: bytes | Iterable[bytes] = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    head: Iterable[bytes] = ()


Script = Callable[[Seen], Reply]


class Hostile:
    """A server on a loopback port. `script` answers every request; `seen` are all of them, in order.

    The first PATCHes are cut off without an answer, each after as many bytes of its body as `cuts` says. A request with a body
    longer than `limit` is answered 413, and its connection is closed, before it is read.
    """

    def __init__(self, port: int = 0) -> None:
        self.script: Script = lambda _: Reply(404)
        self.seen: list[Seen] = []
        self.cuts: list[int] = []
        self.limit: int | None = None
        self._server = _Server(("localhost", port), _Handler)
        self._server.hostile = self
        self.address = f"localhost:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def always(self, reply: Reply) -> None:
        self.script = lambda _: reply

    def by_path(self, replies: dict[str, Reply | list[Reply]]) -> None:
        """Answer by `METHOD end-of-path`; of a list one after the other, the last one from then on. 404 for all else."""
        counts: dict[str, int] = {}

        def script(seen: Seen) -> Reply:
            for key, reply in replies.items():
                method, _, end = key.partition(" ")
                if seen.method == method and seen.path.partition("?")[0].endswith(end):
                    turns = reply if isinstance(reply, list) else [reply]
                    counts[key] = counts.get(key, 0) + 1
                    return turns[min(counts[key], len(turns)) - 1]
            return Reply(404)

        self.script = script

    def asked(self, method: str) -> list[Seen]:
        return [seen for seen in self.seen if seen.method == method]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # with the default of 5, one of eight connections opened at once is delayed by a second
    hostile: Hostile


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def handle_one_request(self) -> None:
        with contextlib.suppress(ConnectionError):
            super().handle_one_request()

    def answer(self) -> None:
        hostile, size = self.server.hostile, int(self.headers.get("Content-Length", "0"))
        if hostile.limit is not None and size > hostile.limit:
            hostile.seen.append(Seen(self.command, self.path, {}))
            self.close_connection = True
            self.send_response_only(413)
            self.end_headers()
            return
        cut = hostile.cuts.pop(0) if self.command == "PATCH" and hostile.cuts else None
        body = self.rfile.read(size if cut is None else cut)
        seen = Seen(self.command, self.path, {name.lower(): value for name, value in self.headers.items()}, body)
        hostile.seen.append(seen)
        if cut is not None:
            self.close_connection = True
            return
        reply = hostile.script(seen)
        for piece in reply.head:
            self.wfile.write(piece)
        self.send_response_only(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if isinstance(reply.body, bytes):
            self.whole(reply.body, reply)
        else:
            self.chunked(reply.body)

    def whole(self, body: bytes, reply: Reply) -> None:
        if reply.status != 304:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: reply.cut])
            self.close_connection = self.close_connection or reply.cut is not None

    def chunked(self, body: Iterable[bytes]) -> None:
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for chunk in body:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        self.wfile.write(b"0\r\n\r\n")

    do_GET = do_HEAD = do_PUT = do_POST = do_PATCH = do_DELETE = answer  # noqa: N815

    def log_message(self, *_: Any) -> None:
        """Print nothing to stderr."""


@contextlib.contextmanager
def hostile() -> Iterator[Hostile]:
    server = Hostile()
    try:
        yield server
    finally:
        server.close()
