"""The HTTP endpoints /livez, /readyz and /metrics, read-only.

/livez reports whether the threads of the process still make progress, /readyz whether the process does its work.
`bounded_http.py` limits the connections.
"""

import io
import json
import logging
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import CollectorRegistry, make_wsgi_app

from publisher.errors import USAGE, Fatal
from publisher.runtime.bounded_http import BoundedHttpServer

log = logging.getLogger(__name__)

StartResponse = Callable[[str, list[tuple[str, str]]], Any]


class HealthServer:
    """Serves the endpoints until `close`. Raises Fatal with exit code 2 if the server cannot listen at the address.

    Args:
        listen: the address, `host:port`.
        registry: the metrics.
        live: returns None, or the reason why the process is not live. It must not block.
        ready: returns None, or the reason why the process is not ready. It must not block.
    """

    def __init__(
        self, listen: str, registry: CollectorRegistry, live: Callable[[], str | None], ready: Callable[[], str | None]
    ) -> None:
        self._metrics = make_wsgi_app(registry)
        self._checks = {"/livez": live, "/readyz": ready}
        host, _, port = listen.rpartition(":")
        self.base_environ = {"SERVER_NAME": host, "SERVER_PORT": port, "GATEWAY_INTERFACE": "CGI/1.1", "SCRIPT_NAME": ""}
        try:
            self._server = BoundedHttpServer(host.strip("[]"), int(port), self._respond)
        except (OSError, OverflowError) as error:
            raise Fatal(
                f"cannot listen on http.listen {listen}: {getattr(error, 'strerror', None) or error}",
                "choose another port in http.listen; port 0 takes a free port",
                USAGE,
            ) from None
        self.address = f"{host}:{self._server.port}"

    def close(self) -> None:
        """Stop serving."""
        self._server.close()

    def get_app(self) -> Callable[..., Iterable[bytes]]:
        """Return the WSGI application. `WSGIRequestHandler` calls this method of its server."""
        return self._answer

    def _respond(self, head: bytes, address: tuple[str, int]) -> bytes:
        return _InMemoryRequest(head, address, self).response()  # type: ignore[arg-type]

    def _answer(self, environ: dict[str, Any], start: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            start("405 Method Not Allowed", [("Content-Type", "text/plain")])
            return [b"read-only\n"]
        if path == "/metrics":
            answer: Iterable[bytes] = self._metrics(environ, start)
            return answer
        if path not in self._checks:
            start("404 Not Found", [("Content-Type", "text/plain")])
            return [b"/livez /readyz /metrics\n"]
        reason = self._checks[path]()
        start("503 Service Unavailable" if reason else "200 OK", [("Content-Type", "application/json")])
        return [json.dumps({"status": "unavailable" if reason else "ok", "reason": reason}).encode() + b"\n"]


class _InMemoryRequest(WSGIRequestHandler):
    """Parses a request head in memory and writes its response into memory, without a socket."""

    request: bytes

    def setup(self) -> None:
        self.rfile = io.BufferedReader(io.BytesIO(self.request))
        self.wfile = io.BytesIO()

    def finish(self) -> None:
        """Keep the buffers open, because `response` reads them."""

    def response(self) -> bytes:
        written: bytes = self.wfile.getvalue()  # type: ignore[attr-defined]
        return written

    def log_message(self, format: str, *arguments: Any) -> None:
        log.debug(format, *arguments)
