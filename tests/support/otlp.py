"""A collector of traces for tests: takes OTLP/HTTP on a free port of this machine and keeps the spans."""

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

Value = str | int | float | None


class Collector:
    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.resources: list[dict[str, Value]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "Collector":
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def take(self, body: bytes) -> None:
        for found in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resources.append(attributes(found.resource))
            self.spans += [span for scope in found.scope_spans for span in scope.spans]


def attributes(holder: object) -> dict[str, Value]:
    """The attributes of a span or of a resource, of the kinds that are used."""
    found: dict[str, Value] = {}
    for pair in holder.attributes:  # type: ignore[attr-defined]
        kind = pair.value.WhichOneof("value")
        found[pair.key] = getattr(pair.value, kind) if kind else None
    return found


def _handler(collector: Collector) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/v1/traces":
                collector.take(gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)
            self.send_response(200 if self.path == "/v1/traces" else 404)
            self.send_header("Content-Type", "application/x-protobuf")
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            """Tests say what they find."""

    return Handler
