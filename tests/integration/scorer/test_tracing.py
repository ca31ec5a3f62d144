"""Traces on the real broker: an event's context reaches its score, and a batch is a span that links to its events."""

from collections.abc import Iterator

import pytest

from tests.integration.scorer.rig import MakeRig, Rig, until
from tests.support import auditor
from tests.support.otlp import Collector, attributes

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


def headers(rig: Rig, topic: str) -> dict[bytes | None, dict[str, bytes]]:
    """Trace headers of every committed record, by key."""
    trace_headers = {}
    for message in auditor.read(rig.bootstrap_servers, topic):
        values = dict(message.headers() or [])
        trace_headers[message.key()] = {n: v for n, v in values.items() if n.startswith("trace") and isinstance(v, bytes)}
    return trace_headers


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


def test_the_trace_of_an_event_continues_with_its_score(make_rig: MakeRig, collector: Collector) -> None:
    rig = make_rig(tracing={"endpoint": collector.endpoint}, output={"headers": ["version"]}).stocked()
    rig.produce(
        b'{"id": "1", "a": 1, "b": 2}', key=b"traced", headers=[("traceparent", PARENT.encode()), ("tracestate", b"v=1")]
    )
    rig.produce(b'{"id": "2", "a": 1, "b": 2}', key=b"untraced")
    rig.produce(b'{"id": "3", "a": 1, "b": 2}', key=b"garbled", headers=[("traceparent", b"00-nonsense")])
    rig.produce(b"broken", key=b"dead", headers=[("traceparent", PARENT.replace(SPAN, "1" * 16).encode())])
    scorer = rig.start().ready()
    until(lambda: rig.answered() == 4, "the answers")
    assert scorer.stop() == 0
    spans = [span for span in collector.spans if attributes(span)["messaging.consumer.group.name"] == rig.name]
    linked = {(link.trace_id.hex(), link.span_id.hex()) for span in spans for link in span.links}
    assert linked == {(TRACE, SPAN), (TRACE, "1" * 16)}
    assert sum(int(attributes(span)["messaging.batch.message_count"] or 0) for span in spans) == 4
    span_attributes = attributes(spans[0])
    assert span_attributes["scorer.version"] == "1.0.0"
    assert {f"scorer.stage.{name}_seconds" for name in ("decode", "infer", "encode", "produce", "commit")} <= set(
        span_attributes
    )
    assert {"service.name": rig.name, "service.instance.id": f"{rig.name}.a"}.items() <= collector.resources[-1].items()
    scores = headers(rig, rig.scores_topic)
    assert scores[b"traced"] == {"traceparent": PARENT.encode(), "tracestate": b"v=1"}
    parents = {f"00-{span.trace_id.hex()}-{span.span_id.hex()}".encode() for span in spans}
    assert {scores[key]["traceparent"][:-3] for key in (b"untraced", b"garbled")} <= parents
    assert headers(rig, rig.dead_topic)[b"dead"]["traceparent"] == PARENT.replace(SPAN, "1" * 16).encode()
