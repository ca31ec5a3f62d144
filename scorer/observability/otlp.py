"""Export spans of batches over OTLP/HTTP with the OpenTelemetry SDK. Environment variables `OTEL_*` configure the SDK.

The header `traceparent` (W3C) of an event is copied to its score, so that the producer of the event and the consumer of the
score share a trace. The span of a batch is in a separate trace, with links to the spans of its events. An unavailable collector
affects no score.
"""

# A batch has events of many producers. The score of an event without a `traceparent` gets the `traceparent` of the batch.

import logging
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextvars import Token

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.environment_variables import OTEL_SPAN_LINK_COUNT_LIMIT
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from scorer.decoding.batch import Batch, Headers
from scorer.observability.traces import Traces

PATH = "/v1/traces"
LINKS = 1_024  # the most links of a span, unless OTEL_SPAN_LINK_COUNT_LIMIT is set
SPANS = 256  # the most spans in the queue; together with LINKS this bounds the memory
CLOSE_SECONDS = 2.0  # the longest wait of `close`
PARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")

Carried = list[tuple[str, str | bytes | None]]


class OtlpTraces(Traces):
    """Traces batches, and sends the spans to a collector from a background thread of the SDK.

    Args:
        endpoint: the collector, `http://host:port`.
        name: the name of the scorer, exported as `service.name`.
        owner: the owner id of this process, exported as `service.instance.id`.
    """

    def __init__(self, endpoint: str, name: str, owner: str) -> None:
        limit = None if OTEL_SPAN_LINK_COUNT_LIMIT in os.environ else LINKS
        resource = Resource.create({"service.name": name, "service.instance.id": owner})
        self._provider = TracerProvider(resource=resource, span_limits=SpanLimits(max_links=limit), shutdown_on_exit=False)
        exporter = OTLPSpanExporter(endpoint.rstrip("/").removesuffix(PATH) + PATH)
        self._provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=SPANS, max_export_batch_size=SPANS // 4))
        self._tracer = self._provider.get_tracer("scorer")
        self._group = name
        self._open: dict[int, Span] = {}
        self._token: Token[Context] | None = None
        for handler in logging.getLogger().handlers:
            handler.addFilter(with_ids)

    def begin(self, batch: Batch, provenance: Mapping[str, str]) -> None:
        """Start the span of a batch. Log lines of this thread have the ids of the span until the batch ends."""
        carried = [_carried(headers) for headers in batch.headers]
        span = self._tracer.start_span(
            f"score {', '.join(sorted(set(batch.topics)))}",
            Context(),
            SpanKind.CONSUMER,
            self._attributes(batch, provenance),
            list(_links(carried)),
        )
        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier, trace.set_span_in_context(span, Context()))
        batch_headers: Carried = [*carrier.items()]
        batch.carried = [headers or batch_headers for headers in carried]
        self._open[id(batch)] = span
        self._leave()
        self._token = context.attach(trace.set_span_in_context(span))

    def end(self, batch: Batch, stages: Mapping[str, float], outcomes: Mapping[str, int]) -> None:
        span = self._open.pop(id(batch))
        span.set_attributes({f"scorer.stage.{name}_seconds": max(spent, 0.0) for name, spent in stages.items()})
        span.set_attributes({f"scorer.events.{name}": number for name, number in outcomes.items()})
        span.end()
        if not self._open:
            self._leave()

    def fail(self, reason: object) -> None:
        for span in self._open.values():
            span.set_status(Status(StatusCode.ERROR, str(reason)))
            span.end()
        self._open.clear()
        self._leave()

    def close(self) -> None:
        """Send the remaining spans. The call waits for at most CLOSE_SECONDS, even if the collector does not answer."""
        self.fail("the scorer stops")
        ending = threading.Thread(target=self._provider.shutdown, name="traces-end", daemon=True)
        ending.start()
        ending.join(CLOSE_SECONDS)
        for handler in logging.getLogger().handlers:
            handler.removeFilter(with_ids)

    def _leave(self) -> None:
        if self._token is not None:
            context.detach(self._token)
            self._token = None

    def _attributes(self, batch: Batch, provenance: Mapping[str, str]) -> dict[str, str | int]:
        return {
            "messaging.system": "kafka",
            "messaging.operation.type": "process",
            "messaging.consumer.group.name": self._group,
            "messaging.batch.message_count": len(batch),
            **{f"scorer.{name}": provenance[name] for name in ("model", "version", "digest", "role")},
        }


def with_ids(record: logging.LogRecord) -> bool:
    """Add the trace id and span id of the current batch to a log record. This is a logging filter that accepts every record."""
    span = trace.get_current_span().get_span_context()
    if span.is_valid:
        record.trace_id = f"{span.trace_id:032x}"
        record.span_id = f"{span.span_id:016x}"
    return True


def _carried(headers: Headers) -> Carried:
    """Return the trace headers of an event: its last `traceparent` and, if there is one, its last `tracestate`.

    The list is empty if the event has no valid `traceparent`.
    """
    trace_headers = {name: value for name, value in headers or () if name in ("traceparent", "tracestate")}
    parent = _bytes(trace_headers.get("traceparent"))
    if PARENT.fullmatch(parent) is None:
        return []
    state = _bytes(trace_headers.get("tracestate"))
    return [("traceparent", parent), *([("tracestate", state)] if state else [])]


def _links(carried: list[Carried]) -> Iterator[Link]:
    """Yield one link for each distinct span in the `traceparent` headers of the events. Omit spans that are not sampled."""
    for parent in dict.fromkeys(headers[0][1] for headers in carried if headers):
        match = PARENT.fullmatch(_bytes(parent))
        if match is not None and int(match[3], 16) & TraceFlags.SAMPLED:
            flags = TraceFlags(int(match[3], 16))
            linked = SpanContext(int(match[1], 16), int(match[2], 16), is_remote=True, trace_flags=flags)
            if linked.is_valid:
                yield Link(linked)


def _bytes(value: str | bytes | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""
