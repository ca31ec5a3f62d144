"""Fields of bytes, in every format: the same numbers as of arrays, and the rejection of invalid bytes."""

import base64
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_registry.package.signature import Signature
from scorer.backends.remote import oip_codec, tf_codec
from scorer.dead_letters.reasons import Reason
from scorer.decoding import decoder_factory
from scorer.decoding.batch import Headers
from scorer.decoding.record_metadata import BatchMetadata, ListedMetadata
from scorer.decoding.types import Decoder, FormatMismatch
from scorer.native.byte_columns import ByteColumn
from scorer.settings import Settings
from tests.conformance.test_native_records import PLACES, batches
from tests.unit.scorer.decoding.formats import assert_same, damaged, signature_of
from tests.unit.scorer.decoding.schema_events import avro_encoder, configured, proto_encoder, settings_of

COUNT = 4
DTYPES = ["bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)), "float16", "float32", "float64"]
AVRO = {"type": "record", "name": "Event", "fields": [{"name": "v", "type": "bytes"}]}
AVRO_TEXT = {"type": "record", "name": "Event", "fields": [{"name": "v", "type": "string"}]}
PROTO = 'syntax = "proto3"; message Event { optional bytes v = 1; }'
PROTO_TEXT = 'syntax = "proto3"; message Event { optional string v = 1; }'
Written = tuple[bytes, bytes | None, Headers]
"""A record's value, key and headers."""


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def listed(value: bytes) -> Written:
    return value, None, None


def ways(folder: Path) -> dict[str, tuple[Settings, str | None, Callable[[bytes], Written]]]:
    """Return, for each way by which bytes reach a scorer: the settings, `from`, and a function that writes the record."""
    by_header = {"id": "header:ce_id"}
    avro, avro_text = avro_encoder(AVRO), avro_encoder(AVRO_TEXT)
    proto, proto_text = proto_encoder(PROTO), proto_encoder(PROTO_TEXT)
    of_avro, of_avro_text = (configured(folder, "avro", json.dumps(schema), **by_header) for schema in (AVRO, AVRO_TEXT))
    of_proto, of_proto_text = (configured(folder, "protobuf", schema, **by_header) for schema in (PROTO, PROTO_TEXT))
    return {
        "json": (settings_of("json"), None, lambda data: listed(json.dumps({"v": text(data)}).encode())),
        "json-array": (settings_of("json-array", **by_header), None, lambda data: listed(json.dumps([text(data)]).encode())),
        "json-envelope": (
            settings_of("json-envelope"),
            None,
            lambda data: listed(json.dumps({"id": 1, "features": [text(data)]}).encode()),
        ),
        "avro": (of_avro, None, lambda data: listed(avro({"v": data}))),
        "avro string": (of_avro_text, None, lambda data: listed(avro_text({"v": text(data)}))),
        "protobuf": (of_proto, None, lambda data: listed(proto({"v": data}))),
        "protobuf string": (of_proto_text, None, lambda data: listed(proto_text({"v": text(data)}))),
        "value": (settings_of("bytes", **by_header), "value", listed),
        "key": (settings_of("json"), "key", lambda data: (b"{}", data, None)),
        "header": (of_avro, "header:v", lambda data: (avro({"v": b""}), b"k", [("v", data)])),
    }


@pytest.fixture(scope="module")
def byte_sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return ways(tmp_path_factory.mktemp("schemas"))


WAYS = ("json", "json-array", "json-envelope", "avro", "avro string", "protobuf", "protobuf string", "value", "key", "header")


def of_bytes(dtype: str, source: str | None, **more: Any) -> Signature:
    field = {"name": "v", "bytes": True, **({"from": source} if source else {}), **more}
    return signature_of(("x", dtype, [field if dtype == "string" else {"length": COUNT, **field}]))


def decoded_as(decoder: Decoder, written: Sequence[Written]) -> Any:
    """Decode as lists and from one buffer, and assert that both results are equal."""
    values, keys, headers = (list(column) for column in zip(*written, strict=True))
    decoded = decoder.decode(values, ListedMetadata(keys, [5] * len(values), headers))
    drawn = [(value, key, PLACES[0], 5) for value, key in zip(values, keys, strict=True)]
    for batch in batches(drawn, headers):
        assert_same(decoder.decode(batch.values, BatchMetadata(batch, range(len(batch)))), decoded, len(batch))
    return decoded


def numbers(dtype: str) -> np.ndarray[Any, Any]:
    data = np.random.default_rng(3).integers(0, 256, (5, COUNT * 8), np.uint8).tobytes()
    if dtype == "bool":
        return np.frombuffer(data, np.uint8)[: 5 * COUNT].reshape(5, COUNT) > 127
    array = np.frombuffer(data, dtype)[: 5 * COUNT].reshape(5, COUNT)
    return np.nan_to_num(array, nan=1.5, posinf=2.5, neginf=-2.5) if array.dtype.kind == "f" else array


@pytest.mark.parametrize(
    ("way", "dtype"), [(way, dtype) for way in WAYS for dtype in (DTYPES if way in ("json", "value") else ["int16", "float32"])]
)
def test_bytes_base64_and_arrays_decode_to_the_same_numbers(byte_sources: Mapping[str, Any], way: str, dtype: str) -> None:
    configuration, source, write = byte_sources[way]
    expected = numbers(dtype)
    decoder = decoder_factory.create_decoder(configuration, of_bytes(dtype, source))
    decoded = decoded_as(decoder, [write(row.astype(expected.dtype.newbyteorder("<")).tobytes()) for row in expected])
    assert (decoded.rows, decoded.rejected) == (list(range(5)), {})
    assert decoded.tensors["x"].dtype == expected.dtype
    array = signature_of(("x", dtype, [{"name": "v", "array": True, "length": COUNT}]))
    listed = decoder_factory.create_decoder(settings_of("json"), array).decode(
        [json.dumps({"v": row.tolist()}).encode() for row in expected]
    )
    np.testing.assert_array_equal(decoded.tensors["x"], expected)
    np.testing.assert_array_equal(decoded.tensors["x"], listed.tensors["x"])


@pytest.mark.parametrize("way", WAYS)
def test_bytes_decode_to_a_text(byte_sources: Mapping[str, Any], way: str) -> None:
    configuration, source, write = byte_sources[way]
    decoded = decoded_as(
        decoder_factory.create_decoder(configuration, of_bytes("string", source)),
        [write(w.encode()) for w in ("", "é", "two words")],
    )
    assert decoded.tensors["x"].tolist() == [[""], ["é"], ["two words"]]
    broken = decoded_as(
        decoder_factory.create_decoder(configuration, of_bytes("string", source)), [write(b"good"), write(b"a\xff")]
    )
    where = f" ({source})" if source else ""
    assert (broken.rows, broken.rejected[1].reason) == ([0], Reason.NOT_UTF8)
    assert str(broken.rejected[1]) == f"field 'v'{where}: 2 bytes are not UTF-8: invalid start byte at byte 1"


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=20)
@given(data=st.lists(st.binary(min_size=14, max_size=18) | st.binary(max_size=40), min_size=1, max_size=5))
def test_bytes_of_another_length_are_rejected_with_both_lengths(
    byte_sources: Mapping[str, Any], way: str, data: list[bytes]
) -> None:
    configuration, source, write = byte_sources[way]
    decoded = decoded_as(
        decoder_factory.create_decoder(configuration, of_bytes("int32", source)), [write(value) for value in data]
    )
    where = f" ({source})" if source else ""
    assert decoded.rows == [row for row, value in enumerate(data) if len(value) == 16]
    assert decoded.tensors["x"].tobytes() == b"".join(value for value in data if len(value) == 16)
    for row, poison in decoded.rejected.items():
        assert poison.reason is Reason.WRONG_TYPE
        assert str(poison) == f"field 'v'{where}: {len(data[row])} bytes, but 16 were expected (4 of int32)"


def test_a_bool_is_zero_or_one(byte_sources: Mapping[str, Any]) -> None:
    configuration, source, write = byte_sources["value"]
    decoded = decoded_as(
        decoder_factory.create_decoder(configuration, of_bytes("bool", source)), [write(b"\0\1\0\1"), write(b"\0\1\2\0")]
    )
    assert decoded.rows == [0]
    assert str(decoded.rejected[1]) == "field 'v' (value): a byte of a bool is 2, but it must be 0 or 1"


def test_floats_of_bytes_are_finite_unless_nan_is_allowed(byte_sources: Mapping[str, Any]) -> None:
    configuration, source, write = byte_sources["value"]
    rows = [np.array(row, "<f4").tobytes() for row in ([1, 2, 3, 4], [1, math.nan, 3, 4], [1, math.inf, 3, 4])]
    strict = decoded_as(
        decoder_factory.create_decoder(configuration, of_bytes("float32", source)), [write(row) for row in rows]
    )
    assert (strict.rows, {poison.reason for poison in strict.rejected.values()}) == ([0], {Reason.NOT_FINITE})
    lenient = decoded_as(
        decoder_factory.create_decoder(configuration, of_bytes("float32", source, default="nan")), [write(row) for row in rows]
    )
    assert lenient.rows == [0, 1]


def test_a_model_server_receives_the_bytes_unchanged(byte_sources: Mapping[str, Any]) -> None:
    configuration, source, write = byte_sources["value"]
    rows = [row.tobytes() for row in numbers("uint16")]
    value, _, _ = write(b"".join(rows))
    bounds = np.arange(len(rows) + 1, dtype=np.int64) * len(rows[0])
    texts = ByteColumn(np.frombuffer(value, np.uint8), bounds[:-1], bounds[1:])
    (tensor,) = decoder_factory.create_decoder(configuration, of_bytes("uint16", source)).decode(texts).tensors.values()
    assert (oip_codec.pack(tensor), oip_codec.describe(tensor)) == (value, "UINT16")
    proto = tf_codec.M["TensorProto"]()
    tf_codec.encode(tensor, proto)
    assert (proto.tensor_content, [dim.size for dim in proto.tensor_shape.dim]) == (value, [len(rows), COUNT])


PADDED = re.compile(rb"[A-Za-z0-9+/]*={0,2}")


@given(data=st.data())
def test_damaged_base64_decodes_to_its_bytes_or_is_rejected(byte_sources: Mapping[str, Any], data: st.DataObject) -> None:
    decoder = decoder_factory.create_decoder(byte_sources["json"][0], of_bytes("uint8", None))
    intact = base64.b64encode(data.draw(st.binary(min_size=COUNT, max_size=COUNT)))
    drawn = data.draw(damaged(intact) | st.text("Aa9+/=-_ \n", max_size=9).map(str.encode))
    value = json.dumps({"v": drawn.decode("latin-1")}).encode()
    decoded = decoder.decode([json.dumps({"v": intact.decode()}).encode(), value])
    valid = bool(PADDED.fullmatch(drawn)) and len(drawn) % 4 == 0 and len(base64.b64decode(drawn)) == COUNT
    assert decoded.rows == ([0, 1] if valid else [0])
    assert decoded.tensors["x"][0].tobytes() == base64.b64decode(intact)
    if valid:
        assert decoded.tensors["x"][1].tobytes() == base64.b64decode(drawn)
    else:
        assert decoded.rejected[1].reason is Reason.WRONG_TYPE
        assert "field 'v': " in str(decoded.rejected[1])


@pytest.mark.parametrize(
    ("format_", "source", "message"),
    [
        ("bytes", None, "input.format bytes parses no value, and field 'v' is inside the value; state its source"),
        ("float32", None, "input.format float32 supports floats only, and the signature has x (bytes of float32)"),
        ("float32", "key", "no field is inside the value, and input.format float32 reads fields; use bytes"),
        ("json", "value", "field 'v' is the whole value, as bytes of float32, and input.format json parses values; use bytes"),
        ("json-array", "key", "no field is inside the value, and input.format json-array reads fields; use bytes"),
    ],
)
def test_formats_without_a_field_for_bytes_refuse(format_: str, source: str | None, message: str) -> None:
    with pytest.raises(FormatMismatch) as caught:
        decoder_factory.create_decoder(settings_of(format_, id="header:ce_id"), of_bytes("float32", source))
    assert message in str(caught.value)
