"""Avro and Protobuf: fixed layout and library say the same, and the same as a plain decoder; schemas by file and by id."""

import io
import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import message_factory
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model_registry.signature import Signature
from publisher.errors import Fatal
from scorer.events import proto_files
from scorer.events.contract import Decoded, Poison, Reason
from scorer.events.schema_decoder import SchemaDecoder, SchemaIdField
from scorer.events.schema_sources import FileSource, RegistrySource
from scorer.events.schemas import Registry, Schema
from scorer.settings import SchemaRegistrySettings, Settings
from tests.unit.scorer.formats import NUMBERS, WIDTH, assert_plain, assert_same, damaged, number_events
from tests.unit.scorer.test_json import SIGNATURE, good_events
from tests.unit.scorer.test_json import plain as plain_mixed

Encode = Callable[[Mapping[str, Any]], bytes]


def nullable(type_: str) -> dict[str, Any]:
    return {"type": ["null", type_], "default": None}


AVRO = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "more", "type": {"type": "record", "name": "More", "fields": [{"name": "a", "type": "double"}]}},
        {"name": "a", "type": "float"},
        {"name": "b", **nullable("double")},
        {"name": "c", **nullable("float")},
        {"name": "vector", "type": {"type": "array", "items": "float"}},
    ],
}
MIXED_AVRO = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "a", "type": "double"},
        {"name": "b", **nullable("double")},
        {"name": "c", **nullable("double")},
        {"name": "count", "type": "int"},
        {"name": "size", **nullable("long")},
        {"name": "word", "type": "string"},
        {"name": "other", **nullable("string")},
        {"name": "flag", **nullable("boolean")},
        {"name": "vector", "type": {"type": "array", "items": "double"}},
        {"name": "id", "type": ["null", "string", "long"], "default": None},
    ],
}
PROTO = """syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Other { int32 n = 1; }
message Event {
  string id = 1;
  int64 at = 2;
  float a = 4;
  optional double b = 5;
  optional float c = 6;
  repeated float vector = 7;
  bytes opaque = 20;
}
"""
MIXED_PROTO = """syntax = "proto3";
message Event {
  double a = 1; optional double b = 2; optional double c = 3; sint32 count = 4; optional int64 size = 5; string word = 6;
  optional string other = 7; optional bool flag = 8; repeated double vector = 9; optional string id = 10;
}
"""


def configured(folder: Path, format_: str, text: str, **more: Any) -> Settings:
    """Settings with a schema file."""
    path = folder / ("schema.avsc" if format_ == "avro" else "schema.proto")
    path = path.with_name(f"{abs(hash(text))}-{path.name}")  # a file is read once in a process
    path.write_text(text)
    return settings_of(format_, schema_file=path, **more)


def settings_of(format_: str, **more: Any) -> Settings:
    return Settings.model_validate(
        {
            "name": "test",
            "kafka": {"bootstrap_servers": "127.0.0.1:1"},
            "input": {"topics": ["t"], "format": format_, "id": "id", "max_event_bytes": 5_000, **more},
            "output": {"topic": "o"},
            "model": {"source": "oci:./r"},
            **({} if "schema_file" in more else {"schema_registry": {"url": "http://127.0.0.1:1"}}),
        }
    )


def avro_encoder(schema: Any) -> Encode:
    parsed = fastavro.parse_schema(schema)

    def encode(event: Mapping[str, Any]) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, {"at": 1_700_000_000_000, "more": {"a": 0.0}, **event})
        return stream.getvalue()

    return encode


def proto_encoder(text: str, **more: Any) -> Encode:
    message = proto_files.message_named(proto_files.compiled(Schema("protobuf", text)), "Event")
    new = message_factory.GetMessageClass(message)
    return lambda event: new(**{k: v for k, v in (more | dict(event)).items() if v is not None}).SerializeToString()


@pytest.fixture(scope="module", params=["avro", "protobuf"])
def numbers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Encode, SchemaDecoder, SchemaDecoder]:
    """An encoder; a decoder with a fixed layout, and the same without."""
    if request.param == "avro":
        text, encode, more = json.dumps(AVRO), avro_encoder(AVRO), {}
    else:
        text, encode, more = PROTO, proto_encoder(PROTO, at=1_700_000_000_000, opaque=b"\xff\0"), {"message": "Event"}
    configuration = configured(tmp_path_factory.mktemp("schemas"), request.param, text, **more)
    return encode, SchemaDecoder(NUMBERS, configuration), without_layout(SchemaDecoder(NUMBERS, configuration))


@pytest.fixture(scope="module", params=["avro", "protobuf"])
def mixed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Encode, SchemaDecoder]:
    """The same for a signature of many dtypes."""
    text = json.dumps(MIXED_AVRO) if request.param == "avro" else MIXED_PROTO
    encode = avro_encoder(MIXED_AVRO) if request.param == "avro" else proto_encoder(MIXED_PROTO)
    return encode, SchemaDecoder(SIGNATURE, configured(tmp_path_factory.mktemp("schemas"), request.param, text))


def without_layout(decoder: SchemaDecoder) -> SchemaDecoder:
    for reader in decoder._readers.values():
        assert reader.layout is not None
        reader.layout = None
    return decoder


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=st.lists(number_events, max_size=5), tombstones=st.integers(0, 2), random=st.randoms())
def test_numbers_agree_with_a_plain_decoder(
    numbers: tuple[Encode, SchemaDecoder, SchemaDecoder], events: list[dict[str, Any]], tombstones: int, random: Any
) -> None:
    encode, *decoders = numbers
    batch: list[dict[str, Any] | None] = [*events, *[None] * tombstones]
    random.shuffle(batch)
    for decoder in decoders:
        decoded = decoder.decode([None if event is None else encode(event) for event in batch])
        assert_plain(decoded, NUMBERS, batch)
        assert decoded.ids == [event["id"] for event in batch if event is not None]


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=st.lists(number_events, min_size=1, max_size=3), data=st.data())
def test_the_layout_and_the_library_say_the_same_of_damaged_events(
    numbers: tuple[Encode, SchemaDecoder, SchemaDecoder], events: list[dict[str, Any]], data: st.DataObject
) -> None:
    encode, fast, slow = numbers
    values = [encode(event) for event in events]
    values[-1] = data.draw(damaged(values[-1]))
    assert_same(fast.decode(values), slow.decode(values), len(values))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=st.lists(good_events, max_size=4), noise=st.lists(st.binary(max_size=20), max_size=3))
def test_every_dtype_agrees_with_a_plain_decoder(
    mixed: tuple[Encode, SchemaDecoder], events: list[dict[str, Any]], noise: list[bytes]
) -> None:
    encode, decoder = mixed
    events = [{**event, "id": str(event["id"])} if event.get("id") is not None else event for event in events]
    events = [{name: value for name, value in event.items() if name != "unknown"} for event in events]
    decoded = decoder.decode([*(encode(event) for event in events), *noise])
    assert decoded.rows[: len(events)] == list(range(len(events)))
    assert sorted([*decoded.rows, *decoded.rejected]) == list(range(len(events) + len(noise)))
    assert decoded.ids[: len(events)] == [event.get("id") for event in events]
    for at, event in enumerate(events):
        for tensor, row in zip(decoded.tensors.values(), plain_mixed(event), strict=True):
            assert repr(tensor[at].tolist()) == repr(
                [tensor.dtype.type(v).item() if tensor.dtype != object else v for v in row]
            )


def test_an_event_in_its_usual_shape_is_not_read_field_by_field(
    numbers: tuple[Encode, SchemaDecoder, SchemaDecoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    encode, fast, _ = numbers
    event = {"id": "x" * 200, "a": 1.0, "b": 2.0, "c": 3.0, "vector": [0.5] * WIDTH}
    reader = next(iter(fast._readers.values()))
    monkeypatch.setattr(reader, "row", lambda *_: pytest.fail("read field by field"))
    assert_plain(fast.decode([encode(event)] * 2), NUMBERS, [event] * 2)


# schema registries


class Shelf:
    """Schemas by id, and how often each was asked for."""

    def __init__(self, schemas: Mapping[int, Schema]) -> None:
        self.schemas = dict(schemas)
        self.asked: list[int] = []

    def __call__(self, _: SchemaRegistrySettings, number: int) -> Schema:
        self.asked.append(number)
        if number not in self.schemas:
            raise Poison(Reason.UNKNOWN_SCHEMA, f"no schema {number}")
        return self.schemas[number]


def by_registry(monkeypatch: pytest.MonkeyPatch, shelf: Shelf, format_: str, clock: Callable[[], float]) -> Settings:
    registry = Registry(SchemaRegistrySettings(url="http://127.0.0.1:1"), shelf, clock)
    monkeypatch.setattr("scorer.events.schema_sources.shared", lambda _: registry)
    return settings_of(format_)


FLAT = Signature.parse(
    '{"inputs": [{"tensor": "x", "dtype": "float32", "fields": ["a", {"name": "b", "default": -1}]}], "output": {"tensor": "y"}}'
)


def framed(number: int, body: bytes, path: bytes = b"") -> bytes:
    return struct.pack(">bI", 0, number) + path + body


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "E", "fields": [{"name": name, "type": type_} for name, type_ in fields]}


def reasons(decoded: Decoded) -> dict[int, Reason]:
    return {row: poison.reason for row, poison in decoded.rejected.items()}


def test_avro_schemas_change_within_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = record(("id", "string"), ("a", "float")), record(("b", "double"), ("a", "int"), ("id", "string"), ("z", "bytes"))
    text = record(("id", "string"), ("a", "string"))
    shelf = Shelf({k: Schema("avro", json.dumps(s)) for k, s in enumerate([old, new, text], start=1)})
    shelf.schemas |= {7: Schema("protobuf", PROTO), 8: Schema("avro", '{"type": "recor'), 9: Schema("avro", '"string"')}
    now = 0.0
    decoder = SchemaDecoder(FLAT, by_registry(monkeypatch, shelf, "avro", lambda: now))
    values = [
        framed(1, avro_encoder(old)({"id": "one", "a": 1.0})),
        framed(2, avro_encoder(new)({"id": "two", "a": 2, "b": 3.0, "z": b""})),
        framed(3, avro_encoder(text)({"id": "three", "a": "3"})),
        framed(4, b""),
        b"\0\0\0",
        b"\1" + bytes(9),
        framed(7, b""),
        framed(8, b""),
        framed(9, b"\2a"),
        framed(1, avro_encoder(old)({"id": "ten", "a": 10.0})),
    ]
    for _ in range(2):
        decoded = decoder.decode(values)
        assert decoded.rows == [0, 1, 9]
        assert decoded.ids == ["one", "two", "ten"]
        assert decoded.tensors["x"].tolist() == [[1, -1], [2, 3], [10, -1]]
        unknown = Reason.UNKNOWN_SCHEMA
        assert reasons(decoded) == {
            2: Reason.WRONG_TYPE,
            3: unknown,
            4: Reason.MALFORMED,
            5: Reason.MALFORMED,
            6: unknown,
            7: unknown,
            8: Reason.WRONG_TYPE,
        }
    assert sorted(shelf.asked) == [1, 2, 3, 4, 7, 8, 9]
    now, shelf.schemas[4] = 11.0, shelf.schemas[1]
    assert reasons(decoder.decode([values[3]])) == {0: Reason.MALFORMED}
    assert shelf.asked[-1] == 4


def test_protobuf_messages_are_found_by_their_path(monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'syntax = "proto3"; message A { message B { float b = 1; optional float a = 2; string id = 3; } } message C { float a = 1; }'
    shelf = Shelf({1: Schema("protobuf", text), 2: Schema("protobuf", "message {")})
    decoder = SchemaDecoder(FLAT, by_registry(monkeypatch, shelf, "protobuf", lambda: 0.0))
    inner = b"\x0d" + struct.pack("<f", 3.0) + b"\x15" + struct.pack("<f", 4.0) + b"\x1a\x01x"
    values = [
        framed(1, inner, b"\x04\x00\x00"),
        framed(1, b"\x0d" + struct.pack("<f", 5.0), b"\x02\x02"),
        framed(1, inner, b"\x02\x08"),
        framed(1, b"", b"\x04\x00"),
        framed(2, b"", b"\x00"),
        framed(1, inner[:-1], b"\x04\x00\x00"),
        framed(1, b"", b"\x00"),
    ]
    decoded = decoder.decode(values)
    assert decoded.tensors["x"].tolist() == [[4, 3], [5, -1]]
    assert decoded.ids == ["x", None]
    unknown, malformed = Reason.UNKNOWN_SCHEMA, Reason.MALFORMED
    assert reasons(decoded) == {2: unknown, 3: malformed, 4: unknown, 5: malformed, 6: Reason.MISSING_FIELD}


def test_a_schema_may_refer_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = {"type": "enum", "name": "Colour", "symbols": ["red", "green"]}
    outer = {**record(("a", "float")), "fields": [{"name": "a", "type": "float"}, {"name": "colour", "type": "Colour"}]}
    shelf = Shelf({1: Schema("avro", json.dumps(outer), (("Colour", json.dumps(inner)),))})
    decoder = SchemaDecoder(FLAT, by_registry(monkeypatch, shelf, "avro", lambda: 0.0))
    assert decoder.decode([framed(1, struct.pack("<f", 1.0) + b"\x02")]).tensors["x"].tolist() == [[1, -1]]
    text = 'syntax = "proto3"; import "more/part.proto"; message E { float a = 1; Part part = 2; }'
    part = 'syntax = "proto3"; message Part { int32 n = 1; }'
    shelf = Shelf({1: Schema("protobuf", text, (("more/part.proto", part),)), 2: Schema("protobuf", text, (("../x", part),))})
    decoder = SchemaDecoder(FLAT, by_registry(monkeypatch, shelf, "protobuf", lambda: 0.0))
    decoded = decoder.decode([framed(n, b"\x0d" + struct.pack("<f", 1.0), b"\0") for n in (1, 2)])
    assert decoded.tensors["x"].tolist() == [[1, -1]]
    assert reasons(decoded) == {1: Reason.UNKNOWN_SCHEMA}


@pytest.mark.parametrize(
    ("format_", "text", "more", "error"),
    [
        ("avro", "{", {}, "no Avro schema"),
        ("protobuf", "message {", {}, "no Protobuf schema"),
        ("protobuf", PROTO, {}, "Other, Event; say which with input.message"),
        ("protobuf", PROTO, {"message": "Evnt"}, "no message 'Evnt'"),
    ],
)
def test_a_file_that_is_no_schema_is_refused(tmp_path: Path, format_: str, text: str, more: dict[str, str], error: str) -> None:
    with pytest.raises(Fatal, match=error) as caught:
        SchemaDecoder(FLAT, configured(tmp_path, format_, text, **more))
    assert caught.value.exit_code == 2


def test_a_descriptor_set_is_a_schema_too(tmp_path: Path) -> None:
    file = proto_files.compiled(Schema("protobuf", MIXED_PROTO))
    data = b"\x0a" + bytes([len(file.serialized_pb) & 0x7F | 0x80, len(file.serialized_pb) >> 7]) + file.serialized_pb
    path = tmp_path / "schema.desc"
    path.write_bytes(data)
    decoder = SchemaDecoder(FLAT, settings_of("protobuf", schema_file=path))
    assert decoder.decode([b"\x09" + struct.pack("<d", 2.0)]).tensors["x"].tolist() == [[2, -1]]


def test_ids_are_read_from_events_that_are_dead_letters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    schema = record(("id", "string"), ("a", "string"))
    shelf = Shelf({1: Schema("avro", json.dumps(schema))})
    ids = SchemaIdField(by_registry(monkeypatch, shelf, "avro", lambda: 0.0))
    body = avro_encoder(schema)({"id": "one", "a": "bad"})
    assert [ids.of(value) for value in (framed(1, body), framed(2, body), framed(1, b"\3"), None)] == ["one", None, None, None]
    assert SchemaIdField(configured(tmp_path, "avro", json.dumps(schema))).of(body) == "one"


def test_sources_say_what_an_event_without_a_header_is() -> None:
    assert FileSource("avro", "x.avsc", b"", None).header(b"abc") == b""
    with pytest.raises(Poison):
        RegistrySource("protobuf", Registry(SchemaRegistrySettings())).header(b"\0\0\0\0\1\xff")
