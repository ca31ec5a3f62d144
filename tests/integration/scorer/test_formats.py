"""Input formats on the real broker, with a real schema registry: good events scored, bad ones dead-lettered, schemas changed
while events flow. What each format does with an event: `conformance/test_decoders.py`."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from onnx import TensorProto, helper

from model_registry.package.event_tree import build_event
from model_registry.package.json_path import parse
from tests.integration.scorer.rig import MakeRig, Rig, until
from tests.integration.scorer.schema_registry import SchemaRegistry
from tests.support import models
from tests.unit.scorer.decoding.schema_events import proto_class


def by_id(rig: Rig) -> dict[str, float]:
    return {record["id"]: record["score"] for record in rig.scores()}


def test_a_format_without_names(make_rig: MakeRig) -> None:
    rig = make_rig(input={"format": "float32", "id": "header:ce_id"}).stocked()
    rig.start().ready()
    for number in range(3):
        rig.produce(np.array([number, 1.0], "<f4").tobytes(), key=b"k", headers=[("ce_id", str(number).encode())])
    rig.produce(b"\0\0\0", key=b"k")
    until(lambda: rig.answered() == 4, "all answers")
    assert by_id(rig) == {"0": 2.0, "1": 4.0, "2": 6.0}
    assert [letter["reason"] for letter in rig.dead()] == ["malformed"]


def convolution(path: Path) -> None:
    """y = rate * (the mean of a 3 by 3 box over x of (B, 2, 4, 4)), of a rate of shape []."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3]),
        helper.make_node("GlobalAveragePool", ["c"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Mul", ["f", "rate"], ["y"]),
    ]
    inputs = [models.tensor("x", TensorProto.FLOAT, "N", 2, 4, 4), models.tensor("rate", TensorProto.FLOAT)]
    box = models.constant("w", np.full((1, 2, 3, 3), 1 / 18))
    models.save(nodes, inputs, [models.tensor("y", TensorProto.FLOAT, "N", 1)], path, [box])


IMAGES = {
    "inputs": [
        {"tensor": "x", "dtype": "float32", "shape": [2, 4, 4], "fields": [{"name": "image", "array": True}]},
        {"tensor": "rate", "dtype": "float32", "value": 10, "batch": False},
    ],
    "output": {"tensor": "y"},
}


def test_arrays_of_a_shape_come_nested_and_flat(make_rig: MakeRig) -> None:
    rig = make_rig()
    golden = [{"event": {"image": np.ones((2, 4, 4)).tolist()}, "score": 10.0, "tolerance": 1e-4}]
    rig.push(models.package(rig.folder / "images", convolution, IMAGES, golden), "1.0.0")
    rig.promote("1.0.0")
    rig.create()
    scorer = rig.start().ready()
    x = np.ones((2, 4, 4))
    shaped = [(number * x).tolist() for number in range(3)] + [(number * x).ravel().tolist() for number in range(3, 6)]
    misshapen = [(5 * x)[:, :3].tolist(), x.ravel().tolist()[:-1]]
    rig.emit([{"key": "k", "id": f"e{number}", "image": image} for number, image in enumerate([*shaped, *misshapen])])
    until(lambda: rig.answered() == 8, "all answers")
    assert {name: round(score, 4) for name, score in by_id(rig).items()} == {f"e{n}": 10.0 * n for n in range(6)}
    assert [(letter["reason"], letter["error"]) for letter in rig.dead()] == [
        ("wrong-type", "field 'image'[0]: an array of 4 was expected, not of 3 (shape [2, 4, 4], nested or flat)"),
        ("wrong-type", "field 'image': an array of 32 was expected, not of 31 (shape [2, 4, 4], nested or flat)"),
    ]
    assert scorer.stop() == 0
    rig.run("scorer", "bench", "./images", "--set", "batching.max_events=8")
    schema = json.loads(rig.run("scorer", "schema", "oci:./registry/model:1.0.0", "--format", "json-schema").stdout)
    assert [variant["minItems"] for variant in schema["properties"]["image"]["anyOf"]] == [32, 2]


def avro_writer(client: SchemaRegistryClient, schema: str, topic: str) -> Callable[[dict[str, Any]], bytes]:
    """What Confluent's own client makes of an event; it registers the schema."""
    serializer = AvroSerializer(client, schema)
    context = SerializationContext(topic, MessageField.VALUE)
    return lambda event: bytes(serializer(event, context) or b"")


def protobuf_writer(client: SchemaRegistryClient, schema: str, topic: str) -> Callable[[dict[str, Any]], bytes]:
    """Messages of the only type of a schema that is registered here."""
    number = client.register_schema(f"{topic}-value", Schema(schema, "PROTOBUF"))
    new = proto_class(schema, None)
    return lambda event: struct.pack(">bIb", 0, number, 0) + bytes(new(**event).SerializeToString())


def test_avro_schemas_change_while_events_flow(make_rig: MakeRig, schema_registry: SchemaRegistry) -> None:
    url = schema_registry.url
    client = SchemaRegistryClient({"url": url})
    rig = make_rig(input={"format": "avro"}, schema_registry={"url": url, "extra": {"timeout": 5}})
    rig.stocked()
    scorer = rig.start().ready()
    generated = rig.run("scorer", "schema", "oci:./registry/model:1.0.0", "--format", "avro", "--id", "id").stdout
    first = avro_writer(client, generated, rig.events_topic)
    for number in range(3):
        rig.produce(first({"id": f"e{number}", "a": float(number), "b": 0.0}), key=b"k")
    until(lambda: rig.answered() == 3, "scores by the first schema")
    document = json.loads(generated)
    document["fields"] = [
        {"name": "note", "type": ["null", "string"], "default": None},
        *reversed(document["fields"]),
        {"name": "more", "type": "double", "default": 0.0},
    ]
    second = avro_writer(client, json.dumps(document), rig.events_topic)
    rig.produce(second({"id": "e3", "a": 3.0, "b": 0.0, "more": 1.0}), key=b"k")
    rig.produce(first({"id": "e4", "a": 4.0, "b": 0.0}), key=b"k")
    rig.produce(second({"id": "bad", "a": float("nan"), "b": 0.0, "note": "x", "more": 1.0}), key=b"k")
    rig.produce(b"\0\0\0\x7f\xff", key=b"k")
    rig.produce(b"no header", key=b"k")
    until(lambda: rig.answered() == 8, "answers by both schemas")
    assert by_id(rig) == {f"e{n}": 2.0 * n for n in range(5)}
    assert [letter["reason"] for letter in rig.dead()] == ["not-finite", "unknown-schema", "malformed"]
    rig.run("scorer", "replay", "scorer.yaml", "--reason", "not-finite")
    until(lambda: rig.answered() == 9, "the replayed event")
    assert scorer.stop() == 0
    assert json.loads(rig.run("scorer", "check", "scorer.yaml", "--json", code=1).stdout)["checks"][-1]["check"] == "sample"


@pytest.mark.parametrize("kind", ["contentId", "globalId"])
def test_schemas_are_found_by_the_ids_in_apicurios_headers(
    make_rig: MakeRig, schema_registry: SchemaRegistry, kind: str
) -> None:
    url = schema_registry.url
    client = SchemaRegistryClient({"url": url})
    rig = make_rig(input={"format": "avro"}, schema_registry={"url": url}).stocked()
    part = json.dumps(
        {"type": "enum", "name": "Part", "symbols": ["P" + rig.name.replace("-", "_")]}
    )  # a content, and its id, of the test's own
    client.register_schema(f"{rig.name}-part", Schema(part, "AVRO"))
    fields = [
        {"name": name, "type": type_} for name, type_ in (("id", "string"), ("part", "Part"), ("a", "float"), ("b", "float"))
    ]
    schema = json.dumps({"type": "record", "name": "E", "fields": fields})
    references = [SchemaReference("Part", f"{rig.name}-part", 1)]
    number = client.register_schema(f"{rig.events_topic}-value", Schema(schema, "AVRO", references))
    version = httpx.get(f"{schema_registry.native}/search/versions", params={"contentId": number}).json()["versions"][0]
    header = (f"apicurio.value.{kind}", int(version[kind]).to_bytes(8, "big"))
    rig.start().ready()
    body = b"\x04e1" + b"\0" + struct.pack("<ff", 3.0, 0.0)
    rig.produce(body, key=b"k", headers=[header])
    rig.produce(body, key=b"k", headers=[(header[0], (2**31 - 1).to_bytes(8, "big"))])
    rig.produce(struct.pack(">bI", 0, number) + body.replace(b"e1", b"e2"), key=b"k")
    until(lambda: rig.answered() == 3, "all answers")
    assert by_id(rig) == {"e1": 6.0, "e2": 6.0}
    [letter] = rig.dead()
    assert letter["reason"] == "unknown-schema"
    assert "2147483647" in letter["error"]


def test_protobuf_schemas_change_while_events_flow(make_rig: MakeRig, schema_registry: SchemaRegistry) -> None:
    url = schema_registry.url
    client = SchemaRegistryClient({"url": url})
    rig = make_rig(input={"format": "protobuf"}, schema_registry={"url": url})
    rig.stocked()
    generated = rig.run("scorer", "schema", "oci:./registry/model", "--format", "protobuf", "--id", "id").stdout
    first = protobuf_writer(client, generated, rig.events_topic)
    second = protobuf_writer(client, generated.replace("}", "  optional string note = 9;\n}"), rig.events_topic)
    rig.start().ready()
    rig.produce(first({"id": "e0", "a": 0.0, "b": 0.0}), key=b"k")
    rig.produce(second({"id": "e1", "a": 1.0, "b": 0.0, "note": "n"}), key=b"k")
    rig.produce(second({"id": "bad", "a": 1.0}), key=b"k")
    rig.produce(first({"id": "e2", "a": 2.0, "b": 0.0})[:-1], key=b"k")
    until(lambda: rig.answered() == 4, "all answers")
    assert by_id(rig) == {"e0": 0.0, "e1": 2.0}
    assert [letter["reason"] for letter in rig.dead()] == ["missing-field", "malformed"]


def nested_package(folder: Path, **paths: str) -> Path:
    """Score = 2 * (a + b), the fields at these paths, with a golden example."""
    fields = [{"name": name, "path": path} for name, path in paths.items()]
    signature = {"inputs": [{"tensor": "x", "dtype": "float32", "fields": fields}], "output": {"tensor": "y"}}
    event = build_event((parse(path), value) for path, value in zip(paths.values(), (1.0, 2.0), strict=True))
    package = models.package(folder, lambda path: models.linear(path, 2.0), signature)
    (package / "golden.jsonl").write_text(json.dumps({"event": event, "score": 6.0, "tolerance": 0}))
    return package


def debezium(number: int) -> dict[str, Any]:
    """A change of a row, as Debezium's JSON without schemas has it."""
    row = {"id": f"e{number}", "a": number, "amounts": [0, {"b": 1}]}
    source = {"version": "3.0.0", "connector": "postgresql", "name": "shop", "table": "orders", "lsn": 24023128}
    return {"before": None, "after": row, "source": source, "op": "c", "ts_ms": 1_700_000_000_000, "transaction": None}


def cloud_event(number: int) -> dict[str, Any]:
    """An event in CloudEvents' structured mode."""
    attributes = {"specversion": "1.0", "id": f"e{number}", "source": "/orders", "type": "com.example.order"}
    return attributes | {"datacontenttype": "application/json", "data": {"order.total": {"a": number}, "b": 1}}


ENVELOPES: dict[str, tuple[Callable[[int], dict[str, Any]], dict[str, str], str, str, str]] = {
    "debezium": (debezium, {"a": "after.a", "b": "after.amounts[1].b"}, "after.id", "{after[id]}", "after"),
    "cloudevents": (cloud_event, {"a": 'data."order.total".a', "b": "data.b"}, "id", "{id}", "data"),
}
"""By envelope: an event, the paths of a model's fields, the path of the id, a key, and the part that bad events lack."""


@pytest.mark.parametrize("envelope", ENVELOPES)
def test_json_in_an_envelope_is_scored_as_it_is(make_rig: MakeRig, envelope: str) -> None:
    write, paths, id_path, key, part = ENVELOPES[envelope]
    rig = make_rig(input={"id": id_path})
    rig.push(nested_package(rig.folder / "nested", **paths), "1.0.0")
    rig.promote("1.0.0")
    rig.create()
    scorer = rig.start().ready()
    assert rig.emit([json.dumps(write(number)).encode() for number in range(50)], key=key) == 50
    assert "the newest 50 events" in rig.run("scorer", "check", "scorer.yaml").stderr
    rig.produce(json.dumps(write(50) | {part: None}).encode(), key=b"k")
    rig.produce(json.dumps(write(50) | {part: "x"}).encode(), key=b"k")
    until(lambda: rig.answered() == 52, "all answers")
    assert by_id(rig) == {f"e{n}": 2.0 * (n + 1) for n in range(50)}
    dead = {letter["reason"]: letter["error"] for letter in rig.dead()}
    assert dead == {
        "missing-field": f"required field 'a' ({paths['a']}) is missing or null",
        "wrong-type": f"field 'a' ({paths['a']}): {part} is a string, not an object with {parse(paths['a'])[1]!r}",
    }
    assert scorer.stop() == 0
    nameless = ["--set", "input.format=json-array", "--set", "input.id=header:ce_id"]
    message = rig.run("scorer", "check", "scorer.yaml", *nameless, code=1).stderr
    assert f"input.format json-array has no field names, but field 'a' has the path {paths['a']}" in message


def test_avro_records_in_records_are_scored_as_they_are(make_rig: MakeRig, schema_registry: SchemaRegistry) -> None:
    url = schema_registry.url
    rig = make_rig(input={"format": "avro", "id": "meta.id"}, schema_registry={"url": url})
    rig.push(nested_package(rig.folder / "nested", a="after.order.a", b="after.order.b"), "1.0.0")
    rig.promote("1.0.0")
    rig.create()
    schema = rig.run("scorer", "schema", "oci:./registry/model:1.0.0", "--format", "avro", "--id", "meta.id").stdout
    write = avro_writer(SchemaRegistryClient({"url": url}), schema, rig.events_topic)
    scorer = rig.start().ready()
    for number in range(5):
        rig.produce(write({"meta": {"id": f"e{number}"}, "after": {"order": {"a": float(number), "b": 1.0}}}), key=b"k")
    rig.produce(write({"meta": {"id": "bad"}, "after": {"order": {"a": float("nan"), "b": 1.0}}}), key=b"k")
    until(lambda: rig.answered() == 6, "all answers")
    assert by_id(rig) == {f"e{n}": 2.0 * (n + 1) for n in range(5)}
    assert [letter["error"] for letter in rig.dead()] == ["field 'a' (after.order.a) is nan"]
    assert scorer.stop() == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": "avro"}, "set either schema_registry.url or input.schema_file"),
        ({"format": "float32"}, "use header:ce_id"),
        ({"schema_file": "./x"}, "leave schema_file out"),
        ({"message": "Event"}, "leave message out"),
    ],
)
def test_settings_that_do_not_fit_the_format_are_refused(make_rig: MakeRig, change: dict[str, str], said: str) -> None:
    assert said in make_rig(input=change).run("scorer", "config", "scorer.yaml", code=2).stderr


def test_the_contract_of_a_version_and_the_breaking_changes_of_another(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.push(models.linear_package(rig.folder / "one", 2.0), "1.0.0")
    wider = {"inputs": [{"tensor": "x", "dtype": "float32", "fields": ["b", "a", "c"]}], "output": {"tensor": "y"}}
    models.package(rig.folder / "two", lambda path: models.linear(path, 2.0, width=3), wider)
    models.package(rig.folder / "bare", lambda path: models.linear(path, 2.0), None)
    old = "oci:./registry/model:1.0.0"
    schema = json.loads(rig.run("scorer", "schema", old).stdout)
    assert schema["required"] == ["a", "b"]
    contract = json.loads(rig.run("scorer", "schema", "two", "--format", "protobuf", "--json").stdout)
    assert contract["model"] == "two"
    assert "optional float c = 3;" in contract["schema"]
    assert rig.run("scorer", "schema", "--diff", "two", old).stdout == f"events for two are valid for {old}\n"
    output = rig.run("scorer", "schema", "--diff", old, "two", code=1).stdout
    assert output == "c: is required now, and was no field before\n"
    report = json.loads(rig.run("scorer", "schema", "--diff", old, "two", "--positional", "--json", code=1).stdout)
    assert [change["field"] for change in report["breaks"]] == ["c", "b", "a", "*"]
    assert "signature.json" in rig.run("scorer", "schema", "bare", code=3).stderr
    assert "--diff" in rig.run("scorer", "schema", old, "two", code=2).stderr
    assert "no tag '9.9.9'" in rig.run("scorer", "schema", "oci:./registry/model:9.9.9", code=3).stderr


def reference(name: str, subject: str) -> SchemaReference:
    return SchemaReference(name, subject, 1)


def test_references_of_references_are_followed_in_avro(make_rig: MakeRig, schema_registry: SchemaRegistry) -> None:
    """A topic of several events is a union of references; each has a part, with a part of its own."""
    url = schema_registry.url
    client = SchemaRegistryClient({"url": url})
    rig = make_rig(input={"format": "avro"}, schema_registry={"url": url}).stocked()
    space = rig.name.replace("-", "_")

    def register(name: str, fields: dict[str, Any], *names: str) -> str:
        stated = [{"name": field, "type": type_} for field, type_ in fields.items()]
        schema = {"type": "record", "name": name, "namespace": space, "fields": stated}
        references = [reference(f"{space}.{referred}", f"{rig.name}-{referred}") for referred in names]
        client.register_schema(f"{rig.name}-{name}", Schema(json.dumps(schema), "AVRO", references))
        return f"{space}.{name}"

    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
    register("Inner", {"n": "int"})
    register("Part", {"inner": "Inner"}, "Inner")
    order = register("Order", {"id": "string", "part": "Part", "a": decimal, "b": "float"}, "Part", "Inner")
    other = register("Other", {"id": "string", "a": "float", "part": ["null", "Part"], "b": "float"}, "Part")
    union = [reference(order, f"{rig.name}-Order"), reference(other, f"{rig.name}-Other")]
    number = client.register_schema(f"{rig.events_topic}-value", Schema(json.dumps([order, other]), "AVRO", union))
    version = httpx.get(f"{schema_registry.native}/search/versions", params={"contentId": number}).json()["versions"][0]
    events = {
        "e0": b"\0\x04e0\x06\x04\x01\x2c" + struct.pack("<f", 1.0),
        "e1": b"\2\x04e1" + struct.pack("<f", 4.0) + b"\2\x06" + struct.pack("<f", 0.0),
    }
    rig.start().ready()
    for value in events.values():
        rig.produce(struct.pack(">bI", 0, number) + value, key=b"k")
    header = ("apicurio.value.contentId", int(version["contentId"]).to_bytes(8, "big"))
    rig.produce(events["e0"].replace(b"e0", b"e2"), key=b"k", headers=[header])
    until(lambda: rig.answered() == 3, "all answers")
    assert rig.dead() == []
    assert by_id(rig) == {"e0": 8.0, "e1": 8.0, "e2": 8.0}


def test_imports_over_two_levels_are_followed_in_protobuf(make_rig: MakeRig, schema_registry: SchemaRegistry) -> None:
    url = schema_registry.url
    client = SchemaRegistryClient({"url": url})
    rig = make_rig(input={"format": "protobuf"}, schema_registry={"url": url}).stocked()

    def register(name: str, body: str, *imports: str) -> int:
        lines = "".join(f'import "{path}.proto"; ' for path in imports)
        references = [
            reference(f"{path}.proto", f"{rig.name}/{path}.proto") for path in imports if not path.startswith("google/")
        ]
        text = f'syntax = "proto3"; package p{rig.name.replace("-", "_")}; {lines}{body}'
        return client.register_schema(f"{rig.name}/{name}.proto", Schema(text, "PROTOBUF", references))

    wrappers = "google/protobuf/wrappers"
    register("inner", "message Inner { google.protobuf.FloatValue b = 1; }", wrappers)
    register("part", "message Part { Inner inner = 1; }", "inner")
    body = "message E { string id = 1; google.protobuf.FloatValue a = 2; float b = 3; Part part = 4; }"
    number = register("event", body, "part", wrappers)
    version = httpx.get(f"{schema_registry.native}/search/versions", params={"contentId": number}).json()["versions"][0]
    value = b"\x0a\x02e0" + b"\x12\x05\x0d" + struct.pack("<f", 2.0) + b"\x1d" + struct.pack("<f", 1.0)
    rig.start().ready()
    rig.produce(struct.pack(">bIb", 0, number, 0) + value, key=b"k")
    header = ("apicurio.value.contentId", int(version["contentId"]).to_bytes(8, "big"))
    rig.produce(value.replace(b"e0", b"e1"), key=b"k", headers=[header])
    until(lambda: rig.answered() == 2, "all answers")
    assert rig.dead() == []
    assert by_id(rig) == {"e0": 6.0, "e1": 6.0}


def test_json_of_confluents_schema_serialiser_is_scored(make_rig: MakeRig, schema_registry: SchemaRegistry) -> None:
    rig = make_rig().stocked()
    rig.start().ready()
    schema = {"title": "E", "type": "object", "properties": {"id": {"type": "string"}}}
    client = SchemaRegistryClient({"url": schema_registry.url})
    write, context = JSONSerializer(json.dumps(schema), client), SerializationContext(rig.events_topic, MessageField.VALUE)
    for number in range(20):
        rig.produce(write({"id": f"e{number}", "a": number, "b": 0.0}, context), key=b"k")
    rig.produce(b'{"id": "plain", "a": 1, "b": 0, "note": "\\ud800"}', key=b"k")
    rig.produce(b"\0\0\0\0\1not JSON", key=b"k")
    until(lambda: rig.answered() == 22, "all answers")
    assert by_id(rig) == {f"e{n}": 2.0 * n for n in range(20)} | {"plain": 2.0}
    assert [letter["reason"] for letter in rig.dead()] == ["malformed"]
