"""Spans of failed batches, and the ids in log lines while a batch is in flight."""

import json
import logging
from collections.abc import Iterator

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from publisher.runtime import logs
from scorer.decoding.batch import Batch, Headers
from scorer.observability.otlp import OtlpTraces
from scorer.observability.traces import Traces
from tests.support.otlp import Collector, attributes

PROVENANCE = {"model": "m", "version": "1.0.0", "digest": "sha256:a", "role": "champion", "region": "local"}
PARENTS = [f"00-{number:032x}-{number:016x}-01".encode() for number in range(1, 2_001)]


def batch(headers: list[Headers]) -> Batch:
    n = len(headers)
    return Batch(["flights"] * n, [0] * n, list(range(n)), [None] * n, [b"{}"] * n, [0] * n, headers)


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


@pytest.fixture
def plain_logging() -> Iterator[None]:
    """Restore the handlers and the level of the root logger."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


@pytest.mark.usefixtures("plain_logging")
def test_log_lines_have_the_ids_of_the_batch_in_flight(collector: Collector, capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure({"scorer": "demo.a"})
    traces = OtlpTraces(collector.endpoint, "demo", "demo.a")
    logging.getLogger("scorer").info("before")
    traces.begin(batch([None]), PROVENANCE)
    logging.getLogger("scorer").info("in flight")
    traces.fail("fenced")
    logging.getLogger("scorer").info("after")
    traces.close()
    before, during, after = map(json.loads, capsys.readouterr().err.splitlines())
    (span,) = collector.spans
    assert (during["trace_id"], during["span_id"]) == (span.trace_id.hex(), span.span_id.hex())
    assert "trace_id" not in {**before, **after}
    assert (span.status.code, span.status.message) == (Status.STATUS_CODE_ERROR, "fenced")


def test_two_batches_are_in_flight_where_commits_overlap(collector: Collector) -> None:
    traces = OtlpTraces(collector.endpoint + "/", "demo", "demo.a")
    first, second = batch([None]), batch([None, None])
    traces.begin(first, PROVENANCE)
    traces.begin(second, PROVENANCE)
    traces.end(first, {"infer": 0.5}, {"scored": 1})
    traces.end(second, {"infer": 0.25}, {"scored": 2})
    traces.close()
    attributes_of_spans = [attributes(span) for span in collector.spans]
    assert [(row["scorer.stage.infer_seconds"], row["scorer.events.scored"]) for row in attributes_of_spans] == [
        (0.5, 1),
        (0.25, 2),
    ]
    assert {span.status.code for span in collector.spans} == {Status.STATUS_CODE_UNSET}


def test_links_are_to_sampled_spans_once_each_and_bounded(collector: Collector) -> None:
    traces = OtlpTraces(collector.endpoint, "demo", "demo.a")
    unsampled, invalid = PARENTS[0][:-1] + b"0", b"00-" + b"0" * 32 + b"-" + b"1" * 16 + b"-01"
    parents: list[bytes] = [PARENTS[5], PARENTS[5], unsampled, invalid, *PARENTS]
    traced = batch([[("traceparent", parent)] for parent in parents])
    traces.begin(traced, PROVENANCE)
    assert traced.carried is not None
    assert traced.carried[0] == traced.carried[1] == [("traceparent", PARENTS[5])]
    assert traced.carried[2] == [("traceparent", unsampled)]
    untouched = batch([[("traceparent", PARENTS[0])]])
    Traces().begin(untouched, PROVENANCE)
    assert untouched.carried is None
    traces.end(traced, {}, {})
    traces.close()
    (span,) = collector.spans
    assert (len(span.links), span.dropped_links_count) == (1_024, len(PARENTS) - 1_024)


def test_an_unavailable_collector_delays_no_batch() -> None:
    traces = OtlpTraces("http://127.0.0.1:1", "demo", "demo.a")
    for _ in range(3):
        traced = batch([None])
        traces.begin(traced, PROVENANCE)
        traces.end(traced, {}, {})
    traces.close()
