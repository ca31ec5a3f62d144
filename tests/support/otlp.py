"""A collector of traces for tests, which receives OTLP/HTTP on a free port of this machine and keeps the spans."""

import gzip
from types import TracebackType

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.integration.registry.hostile import Hostile, Reply, Seen

Value = str | int | float | None


class Collector:
    """Receives traces at the URL `endpoint`; keeps the spans in `spans` and the attributes of resources in `resources`."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.resources: list[dict[str, Value]] = []
        self._server = Hostile()
        self._server.script = self._take
        self.endpoint = f"http://{self._server.address}"

    def __enter__(self) -> "Collector":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.close()

    def _take(self, request: Seen) -> Reply:
        if request.path != "/v1/traces":
            return Reply(404)
        body = gzip.decompress(request.body) if request.headers.get("content-encoding") == "gzip" else request.body
        for resource_spans in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resources.append(attributes(resource_spans.resource))
            self.spans += [span for scope in resource_spans.scope_spans for span in scope.spans]
        return Reply(headers={"Content-Type": "application/x-protobuf"})


def attributes(holder: object) -> dict[str, Value]:
    """Return the attributes of a span or of a resource by name; arrays and maps are not supported."""
    values: dict[str, Value] = {}
    for pair in holder.attributes:  # type: ignore[attr-defined]
        kind = pair.value.WhichOneof("value")
        values[pair.key] = getattr(pair.value, kind) if kind else None
    return values
