"""/livez, /readyz and /metrics over HTTP, read-only. /livez tells whether the work still moves, /readyz whether the process
does what it is there for; what that means, the caller says."""

import json
import logging
import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from publisher.errors import USAGE, Fatal

log = logging.getLogger(__name__)

StartResponse = Callable[[str, list[tuple[str, str]]], Any]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _QuietHandler(WSGIRequestHandler):
    def log_message(self, format: str, *arguments: Any) -> None:
        log.debug(format, *arguments)


class HealthServer:
    """Serves until `close`. `live()` and `ready()` give None where all is well, else what is not."""

    def __init__(
        self, listen: str, registry: CollectorRegistry, live: Callable[[], str | None], ready: Callable[[], str | None]
    ) -> None:
        self._metrics = make_wsgi_app(registry)
        self._checks = {"/livez": live, "/readyz": ready}
        host, _, port = listen.rpartition(":")
        try:
            self._server = make_server(host.strip("[]"), int(port), self._answer, _Server, _QuietHandler)
        except OSError as error:
            raise Fatal(
                f"cannot listen on http.listen {listen}: {error.strerror}",
                "choose another port, or 0 for a free one",
                USAGE,
            ) from None
        self.address = f"{host}:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, name="http", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

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
        wrong = self._checks[path]()
        start("503 Service Unavailable" if wrong else "200 OK", [("Content-Type", "application/json")])
        return [json.dumps({"status": "unavailable" if wrong else "ok", "reason": wrong}).encode() + b"\n"]
