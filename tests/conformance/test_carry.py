"""Carried fields, from every named event format to every score format, with any value at their paths."""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model_registry.package.signature_schema import parse_signature
from publisher.runtime.context import Clock, Context
from scorer.decoding import decoder_factory
from scorer.decoding.batch import Batch, Headers
from scorer.models.servable import Servable
from scorer.scores import formats as score_formats
from scorer.scores.outputs import Scores
from scorer.settings import Settings
from scorer.settings.carry import LONGEST
from scorer.topics import RECORD_OVERHEAD
from scorer.worker.encode import TargetTopic
from scorer.worker.score_batch import BatchScorer, ScoredBatch
from tests.unit.scorer.decoding.schema_events import avro_encoder, configured, proto_encoder, settings_of

SIGNATURE = parse_signature('{"inputs": [{"tensor": "x", "dtype": "float32", "fields": ["a"]}], "output": {"tensor": "y"}}')
CARRY = [
    {"path": "amount", "type": "double"},
    {"path": "after.id", "as": "customer", "type": "string"},
    {"path": "items[1].count", "as": "count", "type": "long"},
    {"path": "flag", "type": "boolean"},
    {"path": "labels.region", "as": "region", "type": "string"},
]
NAMES = ["amount", "customer", "count", "flag", "region"]


def nullable(type_: str) -> dict[str, Any]:
    return {"type": ["null", type_], "default": None}


def record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "a", "type": "float"},
        {"name": "amount", **nullable("double")},
        {"name": "after", "type": ["null", record("After", {"name": "id", **nullable("string")})]},
        {"name": "items", "type": {"type": "array", "items": record("Item", {"name": "count", "type": "long"})}},
        {"name": "flag", **nullable("boolean")},
        {"name": "labels", "type": {"type": "map", "values": "string"}},
        {"name": "raw", **nullable("bytes")},
    ],
}
PROTO = """syntax = "proto3";
message After { optional string id = 1; }
message Item { int64 count = 1; }
message Event {
  string id = 1; float a = 2; optional double amount = 3; After after = 4; repeated Item items = 5; optional bool flag = 6;
  map<string, string> labels = 7; bytes raw = 8;
}
"""
Event = dict[str, Any]
texts = st.text(max_size=20)
good = st.fixed_dictionaries(
    {
        "id": texts,
        "a": st.floats(width=32, allow_nan=False, allow_infinity=False),
        "amount": st.none() | st.floats(),
        "after": st.none() | st.fixed_dictionaries({"id": st.none() | texts | st.just("x" * (LONGEST + 1))}),
        "items": st.lists(st.fixed_dictionaries({"count": st.integers(-(2**63), 2**63 - 1)}), max_size=3),
        "flag": st.none() | st.booleans(),
        "labels": st.dictionaries(st.sampled_from(["region", "other"]), texts),
    }
)
some = settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])


def expected(event: Event) -> Event:
    """Return the fields of an event that its record carries."""
    amount, customer, items = event["amount"], (event["after"] or {}).get("id"), event["items"]
    return {
        "amount": amount if amount is not None and math.isfinite(amount) else None,
        "customer": customer if customer is not None and len(customer.encode()) <= LONGEST else None,
        "count": items[1]["count"] if len(items) > 1 else None,
        "flag": event["flag"],
        "region": event["labels"].get("region"),
    }


def as_json(event: Mapping[str, Any]) -> bytes:
    return json.dumps(event).encode()


def with_carry(settings: Settings, output: str, carry: Any) -> Settings:
    return Settings.model_validate(settings.model_dump() | {"output": {"topic": "o", "format": output, "carry": carry}})


class Case:
    """Events of one format, scores of another."""

    def __init__(self, settings: Settings, encode: Callable[[Mapping[str, Any]], bytes]) -> None:
        self.settings = settings
        self.encode = encode
        self.decoder = decoder_factory.create_decoder(settings, SIGNATURE)
        self.as_json = score_formats.as_json(settings)

    def scored(self, values: list[bytes | None], deadline: int | None = None, largest: int = 1_000_000) -> ScoredBatch:
        """Batch of one partition, scored at 1,000 (Unix ms)."""
        encoder = score_formats.encoder(self.settings, model="m", version="1", digest="sha256:0", role="champion", region="eu")
        score = lambda tensors, _: Scores(SIGNATURE, {"y": np.zeros(len(tensors["x"]), np.float32)})  # noqa: E731
        loaded = SimpleNamespace(decoder=self.decoder, score=score)
        servable = cast(Servable, SimpleNamespace(loaded=loaded, encoder=encoder, label="m:1"))
        scoring = BatchScorer(self.settings, TargetTopic("o", 1, largest), TargetTopic("dead", 1, 1_000_000))
        count = len(values)
        headers: list[Headers] = [[("deadline", str(deadline).encode())] if deadline else None] * count
        batch = Batch(["t"] * count, [0] * count, list(range(count)), [None] * count, values, [1] * count, headers)
        return scoring.score(batch, servable, Context(Clock(lambda: 1_000)))

    def records(self, values: list[bytes | None], **more: Any) -> list[Any]:
        """Return score records as JSON, and dead letters as their topic."""
        records = self.scored(values, **more).records
        return [json.loads(self.as_json(value or b"")) if topic == "o" else topic for topic, value, *_ in records]


def case_of(format_: str, output: str, folder: Path) -> Case:
    if format_ == "json":
        return Case(with_carry(settings_of("json"), output, CARRY), as_json)
    text = json.dumps(AVRO) if format_ == "avro" else PROTO
    more = {"message": "Event"} if format_ == "protobuf" else {}
    encode = avro_encoder(AVRO) if format_ == "avro" else proto_encoder(PROTO)
    return Case(with_carry(configured(folder, format_, text, **more), output, CARRY), encode)


@pytest.fixture(
    scope="module",
    params=[(f, o) for f in ("json", "avro", "protobuf") for o in ("json", "avro", "protobuf")],
    ids=lambda param: f"{param[0]} to {param[1]}",
)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    format_, output = request.param
    return case_of(format_, output, tmp_path_factory.mktemp("schemas"))


@some
@given(data=st.data())
def test_scores_carry_the_fields_of_events_and_no_event_is_lost(case: Case, data: st.DataObject) -> None:
    events: list[Event | None] = data.draw(st.lists(st.none() | good, max_size=5))
    deadline = data.draw(st.sampled_from([None, 500, 2_000]))
    values = [b"\xff\xff\xff" if event is None else case.encode(event) for event in events]
    records = case.records(list(values), deadline=deadline)
    if deadline == 500:
        assert [record["status"] for record in records] == ["expired"] * len(events)
        assert [record["carried"] for record in records] == [expected(e) if e else dict.fromkeys(NAMES) for e in events]
    else:
        assert [record if isinstance(record, str) else record["carried"] for record in records] == [
            expected(event) if event else "dead" for event in events
        ]


@pytest.mark.parametrize("output", ["json", "avro", "protobuf"])
@pytest.mark.parametrize(
    "hostile",
    [
        '"amount": "text", "after": "text", "items": {}, "flag": 1, "labels": []',
        '"amount": {"a": {}}, "after": {"id": {"id": "x"}}, "items": [1, 2], "flag": [true], "labels": {"region": 1}',
        '"amount": NaN, "after": {"id": Infinity}, "items": null, "labels": null',
        '"amount": 1e400, "after": {"id": ""} , "after": {}, "items": [{}, {"count": 1e30}]',
        f'"amount": {"9" * 400}, "after": {{"id": "{"x" * 4_000}"}}',
        '"amount": 1, "amount": null, "after": {"id": "x"}, "after": {"other": 1}, "items": [[], [{"count": 1}]]',
        f'"after": {{"id": {"[" * 500}{"]" * 500}}}',
    ],
)
def test_a_value_that_cannot_be_carried_is_null(output: str, hostile: str, tmp_path: Path) -> None:
    case = case_of("json", output, tmp_path)
    value = f'{{"a": 1, {hostile}}}'.encode()
    ((record),) = case.records([value])
    assert record["status"] == "scored"
    assert record["carried"] == dict.fromkeys(NAMES)


def test_carried_fields_without_types_keep_their_json_text() -> None:
    case = Case(with_carry(settings_of("json"), "json", ["f", "g.h[0]", {"path": "f", "as": "again"}]), as_json)
    for text in ("12.5", "3", "-0.0", '"é"', "true", "null", "18446744073709551615"):
        ((topic, value, *_),) = case.scored([b'{"a": 1, "f": %b, "g": {"h": [%b]}}' % (text.encode(), text.encode())]).records
        assert topic == "o"
        expected_text = f'"carried":{{"f":{text},"g.h[0]":{text},"again":{text}}}}}'
        assert (value or b"").decode().endswith(expected_text)


@pytest.mark.parametrize("format_", ["avro", "protobuf"])
def test_scalar_fields_of_a_schema_are_carried(format_: str, tmp_path: Path) -> None:
    nothing = [
        "raw",
        "after",
        "items",
        "items[0]",
        "items[0].count[0]",
        "items[9].count",
        "items[999999].count",
        "after[0]",
        "labels",
        "labels[0]",
        "id[0]",
        "none.x",
        "items.x",
    ]
    paths = ["id", "items[0].count", *nothing]
    event = {"id": "i", "a": 1.0, "raw": b"r", "after": {"id": "x"}, "items": [{"count": 8}], "labels": {"region": "r"}}
    case = Case(
        with_carry(case_of(format_, "json", tmp_path).settings, "json", paths), case_of(format_, "json", tmp_path).encode
    )
    ((record),) = case.records([case.encode(event)])
    assert record["carried"] == {**dict.fromkeys(nothing), "id": "i", "items[0].count": 8}


def test_a_record_that_only_its_carried_fields_make_too_large_carries_nothing(tmp_path: Path) -> None:
    case = case_of("json", "json", tmp_path)
    small, large = ('{"a": 1, "after": {"id": "%s"}}' % ("x" * length) for length in (1, 900))
    records = case.records([small.encode(), large.encode()], largest=RECORD_OVERHEAD + 500)
    assert [record["carried"]["customer"] for record in records] == ["x", None]
    assert case.records([large.encode()], largest=RECORD_OVERHEAD + 100) == ["dead"]


@pytest.mark.parametrize("carried", [[], CARRY])
@pytest.mark.parametrize("limit", [RECORD_OVERHEAD + 1, RECORD_OVERHEAD, RECORD_OVERHEAD - 1, 100, 1])
def test_events_are_dead_lettered_with_the_reason_if_the_topic_takes_no_score(carried: list[str], limit: int) -> None:
    case = Case(with_carry(settings_of("json"), "json", carried), as_json)
    records = case.scored([b'{"a": 1}', b'{"a": 2}'], largest=limit).records
    reasons = [dict(headers or ())["dead.reason"] for *_, headers in records]
    assert reasons == [b"score-oversize"] * 2


@pytest.mark.parametrize("output", ["json", "avro", "protobuf"])
def test_records_written_with_and_without_carry_are_read_by_both_settings(output: str, tmp_path: Path) -> None:
    full = case_of("json", output, tmp_path)
    without = Case(with_carry(settings_of("json"), output, []), full.encode)
    with_fewer = Case(with_carry(settings_of("json"), output, CARRY[:1]), full.encode)
    value = b'{"a": 1, "amount": 2.5, "flag": true}'
    values = {case: case.scored([value]).records[0][1] or b"" for case in (without, with_fewer, full)}
    assert "carried" not in json.loads(full.as_json(values[without]))
    assert json.loads(without.as_json(values[full])).get("carried") == (
        {**dict.fromkeys(NAMES), "amount": 2.5, "flag": True} if output == "json" else None
    )
    typed = Case(with_carry(settings_of("json"), output, [{"path": "id", "type": "string"}]), full.encode)
    assert json.loads(full.as_json(typed.scored([b'{"a": 1, "id": "longer than a double"}']).records[0][1] or b""))["id"]
    carried = json.loads(full.as_json(values[with_fewer]))["carried"]
    assert carried == ({"amount": 2.5} if output == "json" else {**dict.fromkeys(NAMES), "amount": 2.5})


def test_without_carry_no_field_is_read_and_records_are_unchanged() -> None:
    case = Case(with_carry(settings_of("json"), "json", []), as_json)
    assert type(case.decoder).__name__ == "JsonDecoder"
    ((_, value, *_),) = case.scored([b'{"a": 1, "id": "e"}']).records
    assert value == (
        b'{"id":"e","score":0.0,"decision":null,"source":{"topic":"t","partition":0,"offset":0},"event_ms":1,'
        b'"status":"scored","model":"m","version":"1","digest":"sha256:0","role":"champion","region":"eu","scored_ms":1000,'
        b'"arm":"champion","revision":0}'
    )
