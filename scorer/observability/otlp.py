"""Export spans of batches over OTLP/HTTP with the OpenTelemetry SDK, whose OTEL_ variables apply.

The `traceparent` (W3C) of an event is copied to its score, so that producer and consumer share a trace. A batch has many
producers, so its
span is in a separate trace with links to theirs. The score of an event without one gets the batch's. An unavailable collector
costs no
score: spans are dropped and the SDK logs it.
"""

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
LINKS = 1_024  # of a span, where OTEL_SPAN_LINK_COUNT_LIMIT says nothing
SPANS = 256  # that wait; with LINKS it bounds the memory that they take
CLOSE_SECONDS = 2.0
PARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")

Carried = list[tuple[str, str | bytes | None]]


class OtlpTraces(Traces):
    """Sends to `endpoint`, `http://host:port`, from its own thread. `owner` is this scorer among those of `name`."""

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
        """See Traces. Log lines of this thread carry the ids of the span until the batch ends."""
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
        own: Carried = [*carrier.items()]
        batch.carried = [headers or own for headers in carried]
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
        """See Traces. The SDK may block for a collector that does not answer: the call does not wait for it."""
        self.fail("the scorer ends")
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
    """Add the ids of the current batch's span to a log record; a logging filter that accepts every record."""
    found = trace.get_current_span().get_span_context()
    if found.is_valid:
        record.trace_id, record.span_id = f"{found.trace_id:032x}", f"{found.span_id:016x}"
    return True


def _carried(headers: Headers) -> Carried:
    """Return the event's last valid traceparent with its tracestate; empty without one."""
    found = {name: value for name, value in headers or () if name in ("traceparent", "tracestate")}
    parent = _bytes(found.get("traceparent"))
    if PARENT.fullmatch(parent) is None:
        return []
    state = _bytes(found.get("tracestate"))
    return [("traceparent", parent), *([("tracestate", state)] if state else [])]


def _links(carried: list[Carried]) -> Iterator[Link]:
    """Yield one link per sampled span of the events."""
    for parent in dict.fromkeys(headers[0][1] for headers in carried if headers):
        match = PARENT.fullmatch(_bytes(parent))
        if match is not None and int(match[3], 16) & TraceFlags.SAMPLED:
            flags = TraceFlags(int(match[3], 16))
            linked = SpanContext(int(match[1], 16), int(match[2], 16), is_remote=True, trace_flags=flags)
            if linked.is_valid:
                yield Link(linked)


def _bytes(value: str | bytes | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""
