"""Formats of score records on the real broker, with a real schema registry, and the fields that they carry."""

import json
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.integration.scorer.rig import MakeRig, events, until
from tests.integration.scorer.schema_registry import SchemaRegistry
from tests.support import auditor
from tests.unit.scorer.decoding.schema_events import proto_class


def test_scores_in_avro_by_a_registry(make_rig: MakeRig, schema_registry: SchemaRegistry) -> None:
    url = schema_registry.url
    carry = [{"path": "key", "type": "string"}, {"path": "after.n", "as": "n", "type": "long"}]
    rig = make_rig(output={"format": "avro", "headers": ["id"], "carry": carry}, schema_registry={"url": url})
    rig.stocked()
    rig.start().ready()
    assert rig.emit({**event, "after": {"n": number, "more": []}} for number, event in enumerate(events(200))) == 200
    until(lambda: rig.answered() == 200, "the scores")
    read = AvroDeserializer(SchemaRegistryClient({"url": url}))
    context = SerializationContext(rig.scores_topic, MessageField.VALUE)
    records: list[Any] = [read(m.value(), context) for m in auditor.read(rig.bootstrap_servers, rig.scores_topic)]
    assert {record["id"]: record["score"] for record in records} == {f"e{n}": 2.0 * n for n in range(200)}
    carried = {record["id"]: record["carried"] for record in records}
    assert carried == {f"e{n}": {"key": f"k{n % 20}", "n": n} for n in range(200)}
    printed = rig.run("scorer", "schema", "--scores", "--format", "avro", "--config", "scorer.yaml").stdout
    assert json.loads(printed)["fields"][-1]["name"] == "carried"
    misspelt = ["--set", "output.carry=[kye, key]", "--set", "output.format=json"]
    checks = json.loads(rig.run("scorer", "check", "scorer.yaml", "--json", *misspelt, code=1).stdout)["checks"]
    (wrong,) = [check for check in checks if not check["ok"]]
    assert "newest 200 events" in wrong["detail"]
    assert "have no 'kye' (string, number or boolean), which output.carry copies" in wrong["detail"]
    tailed = [json.loads(line) for line in rig.run("scorer", "tail", "scorer.yaml", "--no-follow").stdout.splitlines()]
    assert all(record.pop("fallback") is None for record in records)  # JSON leaves it out
    assert sorted(tailed, key=lambda record: record["id"]) == sorted(records, key=lambda record: record["id"])
    assert json.loads(rig.run("scorer", "audit", "scorer.yaml", "--json").stdout)["missing"] == 0
    unreachable = ["schema_registry.url=http://127.0.0.1:1", "schema_registry.extra={max.retries: 0}"]
    waiting = rig.start("b", *(flag for change in unreachable for flag in ("--set", change)))
    until(lambda: "schema-registry: " in waiting.get("/readyz")[1], "the wait")
    assert waiting.stop() == 0


def test_scores_begin_to_carry_fields_of_json_events(make_rig: MakeRig) -> None:
    rig = make_rig().stocked()
    before = rig.start().ready()
    rig.emit(events(100))
    until(lambda: rig.answered() == 100, "scores that carry nothing")
    assert before.stop() == 0
    rig.configure(output={"carry": ["key", {"path": "after.ids[1]", "as": "second", "type": "long"}]})
    rig.start().ready()
    rig.emit({**event, "after": {"ids": [0, n]}} for n, event in enumerate(events(100, start=100)))
    rig.produce(b'{"id": "huge", "a": 1, "b": 1, "key": "%b", "after": {"ids": [0, "1"]}}' % (b"x" * 5_000), key=b"k")
    rig.produce(b'{"id": "nan", "a": 1, "b": 1, "key": NaN, "after": 3}', key=b"k")
    rig.produce(b'{"id": "late", "a": 1, "b": 1, "key": "k", "after": {"ids": [2, 3]}}', key=b"k", headers=[("deadline", b"1")])
    rig.produce(b'{"id": "bad", "a": "x", "b": 1, "key": "k"}', key=b"k")
    until(lambda: rig.answered() == 204, "scores that carry fields")
    carried = {record["id"]: record.get("carried") for record in rig.scores()}
    nothing = {"key": None, "second": None}
    assert carried == {
        **{f"e{n}": None for n in range(100)},
        **{f"e{n}": {"key": f"k{n % 20}", "second": n - 100} for n in range(100, 200)},
        "huge": nothing,
        "nan": nothing,
        "late": {"key": "k", "second": 3},
    }
    assert [letter["reason"] for letter in rig.dead()] == ["wrong-type"]
    tailed = [json.loads(line) for line in rig.run("scorer", "tail", "scorer.yaml", "--no-follow").stdout.splitlines()]
    assert {record["id"]: record.get("carried") for record in tailed} == carried
    rig.assert_audited(events=204)


def test_a_schema_may_be_a_file_and_scores_may_be_protobuf(make_rig: MakeRig) -> None:
    rig = make_rig(
        input={"format": "protobuf", "schema_file": "./events.proto", "message": "Event"},
        output={"format": "protobuf", "carry": [{"path": "b", "type": "double"}]},
    )
    text = 'syntax = "proto3"; message Other {} message Event { string id = 1; float a = 2; double b = 3; }'
    rig.path.with_name("events.proto").write_text(text)
    rig.stocked()
    scorer = rig.start().ready()
    rig.produce(proto_class(text, "Event")(id="one", a=1.0, b=2.0).SerializeToString(), key=b"k")
    until(lambda: rig.answered() == 1, "the score")
    score = proto_class(
        rig.run("scorer", "schema", "--scores", "--format", "protobuf", "--config", "scorer.yaml").stdout, "Score"
    )
    record = score.FromString(next(iter(auditor.read(rig.bootstrap_servers, rig.scores_topic))).value() or b"")
    assert (record.id, record.score.number, record.decision, record.version) == ("one", 6.0, "high", "1.0.0")
    assert record.carried.b == 2.0
    assert json.loads(rig.run("scorer", "tail", "scorer.yaml", "--no-follow").stdout)["score"] == 6.0
    assert json.loads(rig.run("scorer", "schema", "--scores", "--format", "avro").stdout)["name"] == "Score"
    assert "--format" in rig.run("scorer", "schema", "--scores", code=2).stderr
    assert scorer.stop() == 0
    message = rig.run("scorer", "run", "scorer.yaml", "--set", "input.message=Evnt", code=2).stderr
    assert "no message 'Evnt', only Other, Event" in message
