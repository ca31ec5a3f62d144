"""Schemas by the id in each event and by file: known and unknown schemas, and the result of the event."""

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from model_registry.extras import install_command
from publisher.errors import Fatal
from scorer.dead_letters.reasons import Poison, Reason
from scorer.decoding.schema_formats import proto_files
from scorer.decoding.schema_formats.decoder import SchemaDecoder, SchemaIdReader
from scorer.decoding.schema_formats.schema import LookUpFailed, Schema, SchemaId
from scorer.decoding.schema_formats.schema_registry import SchemaRegistry
from scorer.decoding.schema_formats.schema_source import SchemaRegistrySource
from scorer.decoding.types import Decoded
from scorer.settings.input import SchemaRegistrySettings
from tests.support.environment import ROOT
from tests.unit.scorer.decoding.formats import signature_of
from tests.unit.scorer.decoding.schema_events import PROTO, avro_encoder, configured, settings_of

SMALL_PROTO = 'syntax = "proto3"; message E { float a = 1; }'


class CountingClient:
    """A client with schemas by id, which records the requested ids."""

    def __init__(self, schemas: Mapping[int, Schema]) -> None:
        self.schemas = dict(schemas)
        self.requested: list[int] = []

    def schema(self, schema_id: SchemaId) -> Schema:
        number = int(schema_id.value)
        self.requested.append(number)
        if number not in self.schemas:
            raise LookUpFailed(f"no schema {number}", 404)
        return self.schemas[number]

    def probe(self) -> None:
        """Answer."""


def registry(client: CountingClient, format_: str, clock: Callable[[], float] = lambda: 0.0) -> SchemaRegistrySource:
    return SchemaRegistrySource(format_, SchemaRegistry(SchemaRegistrySettings(url="http://127.0.0.1:1"), client, clock))


def decoder_of(client: CountingClient, format_: str, clock: Callable[[], float] = lambda: 0.0) -> SchemaDecoder:
    return SchemaDecoder(FLAT, settings_of(format_), registry(client, format_, clock))


FLAT = signature_of(("x", "float32", ["a", {"name": "b", "default": -1}]))


def framed(number: int, body: bytes, path: bytes = b"") -> bytes:
    return struct.pack(">bI", 0, number) + path + body


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "E", "fields": [{"name": name, "type": type_} for name, type_ in fields]}


def reasons(decoded: Decoded) -> dict[int, Reason]:
    return {row: poison.reason for row, poison in decoded.rejected.items()}


def test_avro_schemas_change_within_a_batch() -> None:
    old, new = record(("id", "string"), ("a", "float")), record(("b", "double"), ("a", "int"), ("id", "string"), ("z", "bytes"))
    text = record(("id", "string"), ("a", "string"))
    client = CountingClient({k: Schema("avro", json.dumps(s)) for k, s in enumerate([old, new, text], start=1)})
    client.schemas |= {7: Schema("protobuf", PROTO), 8: Schema("avro", '{"type": "recor'), 9: Schema("avro", '"string"')}
    now = 0.0
    decoder = decoder_of(client, "avro", lambda: now)
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
        b"\0\xff\xff\xff\xff",  # an invalid id, which is not requested
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
            10: unknown,
        }
    assert sorted(client.requested) == [1, 2, 3, 4, 7, 8, 9]
    now, client.schemas[4] = 11.0, client.schemas[1]
    assert reasons(decoder.decode([values[3]])) == {0: Reason.MALFORMED}
    assert client.requested[-1] == 4


def test_a_schema_with_several_events_in_a_batch_is_looked_up_beside_a_flood_of_unknown_ids() -> None:
    schema = record(("id", "string"), ("a", "float"))
    client = CountingClient({1: Schema("avro", json.dumps(schema))})
    decoder = decoder_of(client, "avro")
    assert len(decoder.decode([framed(number, b"") for number in range(100, 200)]).rejected) == 100
    readable = framed(1, avro_encoder(schema)({"id": "one", "a": 1.0}))
    decoded = decoder.decode([*(framed(number, b"") for number in range(200, 300)), readable, readable])
    assert decoded.rows == [100, 101]
    assert len(client.requested) < 20


def test_protobuf_messages_are_found_by_their_path() -> None:
    inside = "message B { float b = 1; optional float a = 2; string id = 3; }"
    text = f'syntax = "proto3"; message A {{ {inside} }} message C {{ float a = 1; }}'
    client = CountingClient({1: Schema("protobuf", text), 2: Schema("protobuf", "message {")})
    decoder = decoder_of(client, "protobuf")
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


def test_a_schema_may_refer_to_another() -> None:
    inner = {"type": "enum", "name": "Colour", "symbols": ["red", "green"]}
    outer = {**record(("a", "float")), "fields": [{"name": "a", "type": "float"}, {"name": "colour", "type": "Colour"}]}
    client = CountingClient({1: Schema("avro", json.dumps(outer), (("Colour", json.dumps(inner)),))})
    decoder = decoder_of(client, "avro")
    assert decoder.decode([framed(1, struct.pack("<f", 1.0) + b"\x02")]).tensors["x"].tolist() == [[1, -1]]
    text = 'syntax = "proto3"; import "more/part.proto"; message E { float a = 1; Part part = 2; }'
    part = 'syntax = "proto3"; message Part { int32 n = 1; }'
    names = ["more/part.proto", "../x", "", "a\0b", "x" * 999]
    client = CountingClient({at: Schema("protobuf", text, ((name, part),)) for at, name in enumerate(names, start=1)})
    decoder = decoder_of(client, "protobuf")
    decoded = decoder.decode([framed(n, b"\x0d" + struct.pack("<f", 1.0), b"\0") for n in range(1, 6)])
    assert decoded.tensors["x"].tolist() == [[1, -1]]
    assert reasons(decoded) == dict.fromkeys(range(1, 5), Reason.UNKNOWN_SCHEMA)


@pytest.mark.parametrize(
    ("format_", "text", "options", "error"),
    [
        ("avro", "{", {}, "invalid Avro schema"),
        ("protobuf", "message {", {}, "invalid Protobuf schema"),
        ("protobuf", PROTO, {}, "Other, Event; select one with input.message"),
        ("protobuf", PROTO, {"message": "Evnt"}, "no message 'Evnt'"),
    ],
)
def test_a_file_that_is_no_schema_is_refused(
    tmp_path: Path, format_: str, text: str, options: dict[str, str], error: str
) -> None:
    with pytest.raises(Fatal, match=error) as raised:
        SchemaDecoder(FLAT, configured(tmp_path, format_, text, **options))
    assert raised.value.exit_code == 2


@pytest.mark.parametrize(("format_", "library"), [("avro", "fastavro"), ("protobuf", "grpc_tools")])
def test_a_format_without_its_library_names_the_extra(monkeypatch: pytest.MonkeyPatch, format_: str, library: str) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(Fatal, match=f"needs the package {library}") as raised:
        SchemaDecoder(FLAT, settings_of(format_))
    assert raised.value.hint == install_command(format_)


def test_a_descriptor_set_is_a_schema_too(tmp_path: Path) -> None:
    file = proto_files.compiled(Schema("protobuf", SMALL_PROTO))
    data = b"\x0a" + bytes([len(file.serialized_pb)]) + file.serialized_pb
    path = tmp_path / "schema.desc"
    path.write_bytes(data)
    decoder = SchemaDecoder(FLAT, settings_of("protobuf", schema_file=path))
    assert decoder.decode([b"\x0d" + struct.pack("<f", 2.0)]).tensors["x"].tolist() == [[2, -1]]


def test_ids_are_read_from_events_that_are_dead_letters(tmp_path: Path) -> None:
    schema = record(("id", "string"), ("a", "string"))
    client = CountingClient({1: Schema("avro", json.dumps(schema))})
    ids = SchemaIdReader(settings_of("avro"), registry(client, "avro"))
    body = avro_encoder(schema)({"id": "one", "a": "bad"})
    assert [ids.read_id(value) for value in (framed(1, body), framed(2, body), framed(1, b"\3"), None)] == [
        "one",
        None,
        None,
        None,
    ]
    assert SchemaIdReader(configured(tmp_path, "avro", json.dumps(schema))).read_id(body) == "one"
    with pytest.raises(Poison):
        registry(client, "protobuf").key(b"\0\0\0\0\1\xff")


def nested_avro(depth: int) -> bytes:
    """Encode a record of a recursive type with this number of levels."""
    return b"".join([struct.pack("<f", 1.0) + b"\x02"] * depth) + struct.pack("<f", 1.0) + b"\x00"


def nested_proto(depth: int) -> bytes:
    inner = b""
    for _ in range(depth):
        length, size = len(inner), bytearray()
        while length > 0x7F:
            size.append(length & 0x7F | 0x80)
            length >>= 7
        inner = b"\x12" + bytes([*size, length]) + inner
    return struct.pack("<Bf", 0x0D, 1.0) + inner


NESTS: dict[str, tuple[Schema, Callable[[int], bytes], bytes]] = {
    "avro": (Schema("avro", json.dumps(record(("a", "float"), ("next", ["null", "E"])))), nested_avro, b""),
    "protobuf": (Schema("protobuf", 'syntax = "proto3"; message E { float a = 1; E next = 2; }'), nested_proto, b"\0"),
}


@pytest.mark.parametrize("format_", NESTS)
def test_an_event_that_nests_too_deeply_is_malformed_and_affects_no_other(format_: str, tmp_path: Path) -> None:
    """The decoder runs in a separate process, which a reader without a limit would end."""
    deepest = 2_000 if format_ == "protobuf" else 100_000
    program = tmp_path / "decode.py"
    program.write_text(
        "from tests.unit.scorer.decoding import test_schemas as tests\n"
        f"schema, nested, path = tests.NESTS[{format_!r}]\n"
        f"settings = tests.settings_of({format_!r}, max_event_bytes=1 << 24)\n"
        "client = tests.CountingClient({1: schema})\n"
        f"decoder = tests.SchemaDecoder(tests.FLAT, settings, tests.registry(client, {format_!r}))\n"
        f"depths = 0, 3, {deepest}, {2 * deepest}, 1\n"
        "decoded = decoder.decode([tests.framed(1, nested(depth), path) for depth in depths])\n"
        "assert decoded.rows == [0, 1, 4], decoded\n"
        "assert tests.reasons(decoded) == dict.fromkeys((2, 3), 'malformed'), decoded.rejected\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    completed = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False, env=environment)
    assert completed.returncode == 0, completed.stderr


@pytest.mark.timeout(30)
def test_types_that_share_their_parts_are_visited_once() -> None:
    """Each of 60 types has two parts of the previous type, so there are 2**60 paths through them."""
    references = [("T0", json.dumps({**record(("a", "float")), "name": "T0"}))]
    for number in range(1, 60):
        parts = record(*((name, f"T{number - 1}") for name in "xy"))
        references.append((f"T{number}", json.dumps({**parts, "name": f"T{number}"})))
    schema = Schema("avro", json.dumps(record(("a", "float"), ("more", ["null", "T59"]))), tuple(references))
    decoded_batch = decoder_of(CountingClient({1: schema}), "avro").decode([framed(1, struct.pack("<f", 2.0) + b"\x00")])
    assert (decoded_batch.rows, decoded_batch.rejected) == ([0], {})


def test_a_schema_that_nests_too_deeply_is_invalid() -> None:
    deep: Any = "float"
    for _ in range(200):
        deep = {"type": "array", "items": deep}
    client = CountingClient({1: Schema("avro", json.dumps(record(("a", "float"), ("b", deep))))})
    decoded_batch = decoder_of(client, "avro").decode([framed(1, b"\0" * 9)])
    assert "levels deep" in str(decoded_batch.rejected[0])
