"""Feature records that are encoded and decoded again: the tensors are the same bit for bit."""

import json
import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from model_registry.package.dtypes import DTYPES, FLOAT_LIMITS, INTEGER_LIMITS
from model_registry.package.signature import InputField, Output, Signature, TensorInput
from scorer.features.input_pieces import Tensors
from scorer.features.logged_inputs import avro_names, avro_schema, select_logged
from scorer.features.read import AvroFeatureReader, FeatureDecoder, FeatureRecord, decode_json
from scorer.features.record_builder import encode_ids
from scorer.features.record_encoder import AnsweringVersions, AvroFeatureEncoder, EventColumns, JsonFeatureEncoder
from scorer.native.librdkafka import librdkafka_plugin
from scorer.native.produce_records import RecordPiece, joined, texts_of
from scorer.scores.record import RecordEncoder

HEADER = b"\0\0\0\0\7"
CHAMPION = RecordEncoder(model="m", version="1", digest="sha256:0", role="champion", region="r").acting(
    role="champion", arm="champion", revision=7
)
CANARY = RecordEncoder(model="m", version="2", digest="sha256:1", role="canary", region="r").acting(
    role="canary", arm="canary", revision=7
)
ODD_FLOATS = [0.0, -0.0, 1e-45, 7.038531e-26, 1.17549435e-38, 3.4028234663852886e38, 5e-324, 1.7976931348623157e308, 0.1]
NAMES = st.lists(st.text(min_size=1, max_size=6).filter(lambda text: text.isprintable()), min_size=1, max_size=5, unique=True)


def floats(dtype: str) -> st.SearchStrategy[Any]:
    limit = FLOAT_LIMITS[dtype]
    odd = st.sampled_from([value for value in ODD_FLOATS if abs(value) <= limit])
    width: Any = {"float16": 16, "float32": 32, "float64": 64}[dtype]
    return st.floats(width=width, allow_infinity=False, allow_nan=False) | odd | st.just(math.nan)


def elements(dtype: str) -> st.SearchStrategy[Any]:
    if dtype in FLOAT_LIMITS:
        return floats(dtype)
    if dtype in INTEGER_LIMITS:
        low, high = INTEGER_LIMITS[dtype]
        return st.integers(low, high) | st.sampled_from([low, high])
    return st.booleans() if dtype == "bool" else st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def array_of(values: list[Any], dtype: str) -> NDArray[Any]:
    result = np.empty(len(values), object if dtype == "string" else dtype)
    with np.errstate(under="ignore"):
        result[:] = values
    return result


@st.composite
def batches(draw: st.DrawFn) -> tuple[Signature, dict[str, NDArray[Any]], int]:
    """Draw a signature, the tensors of some events, and the number of events."""
    count = draw(st.integers(1, 5))
    tensors: list[TensorInput] = []
    values: dict[str, NDArray[Any]] = {}
    names = draw(NAMES)
    for position, name in enumerate(names):
        dtype = draw(st.sampled_from(DTYPES))
        default = math.nan if dtype in FLOAT_LIMITS else None
        tensor = f"t{position}"
        kind = draw(st.sampled_from(["scalars", "array", "varies"]))
        if kind == "scalars":
            fields = tuple(InputField(f"{name}{column}", dtype, default is None, default) for column in range(1, 4))
            rows = [draw(st.lists(elements(dtype), min_size=3, max_size=3)) for _ in range(count)]
            values[tensor] = array_of([element for row in rows for element in row], dtype).reshape(count, 3)
            tensors.append(TensorInput(tensor, dtype, fields))
            continue
        length = 4
        shape = (2, 2) if kind == "array" else (-1, 2)
        field = InputField(name, dtype, default is None, default, length, shape)
        tensors.append(TensorInput(tensor, dtype, (field,), shape))
        if kind == "array":
            rows = [draw(st.lists(elements(dtype), min_size=length, max_size=length)) for _ in range(count)]
            values[tensor] = array_of([element for row in rows for element in row], dtype).reshape(count, length)
        else:
            steps = [draw(st.integers(0, length // 2)) for _ in range(count)]
            rows = [draw(st.lists(elements(dtype), min_size=2 * size, max_size=2 * size)) for size in steps]
            ragged = np.empty(count, object)
            for row, (values_of_row, size) in enumerate(zip(rows, steps, strict=True)):
                ragged[row] = array_of(values_of_row, dtype).reshape(size, 2)
            values[tensor] = ragged
    return Signature(tuple(tensors), (Output(None, "y"),)), values, count


def events(count: int) -> EventColumns:
    return EventColumns(
        encode_ids([f'e"{row} é' for row in range(count)]),
        [("in", 0), ('t"é', 70_000)],
        np.arange(count, dtype=np.int32) % 2,
        np.arange(count, dtype=np.int64) * 2**50,
        np.arange(count, dtype=np.int64) + 1_700_000_000_000,
    )


def values_of(pieces: list[RecordPiece], count: int) -> list[bytes]:
    """Concatenate the pieces; the native function must have the same result as the one in Python."""
    texts = texts_of(pieces, count)
    if (plugin := librdkafka_plugin()) is not None:
        assert list(joined(plugin, pieces, count)) == texts
    return texts


def records_of(format_: str, signature: Signature, tensors: Tensors, count: int) -> list[FeatureRecord]:
    logged = select_logged(signature, "all")
    versions = AnsweringVersions([CHAMPION, CANARY], np.arange(count, dtype=np.int32) % 2)
    if format_ == "json":
        return [
            decode_json(value)
            for value in values_of(JsonFeatureEncoder(logged).pieces(events(count), tensors, versions, 99), count)
        ]
    read_record = AvroFeatureReader({7: avro_schema(logged)}.__getitem__)
    return [
        read_record(value)
        for value in values_of(AvroFeatureEncoder(logged, HEADER).pieces(events(count), tensors, versions, 99), count)
    ]


def bits(tensor: NDArray[Any]) -> list[Any]:
    """Return the shape, dtype and bytes of each row; for texts, the texts."""
    return [
        (row.shape, row.dtype, row.tolist() if row.dtype == object else np.ascontiguousarray(row).tobytes()) for row in tensor
    ]


@pytest.mark.parametrize("format_", ["json", "avro"])
@given(batches())
def test_decoded_records_have_the_tensors_with_which_the_model_was_run(
    format_: str, batch: tuple[Signature, dict[str, NDArray[Any]], int]
) -> None:
    signature, tensors, count = batch
    decoded = FeatureDecoder(signature).convert(records_of(format_, signature, tensors, count))
    assert decoded.rejected == {}
    assert {name: bits(tensor) for name, tensor in decoded.tensors.items()} == {
        name: bits(tensor) for name, tensor in tensors.items()
    }


@pytest.mark.parametrize("format_", ["json", "avro"])
def test_a_record_has_the_position_and_the_version_of_its_score(format_: str) -> None:
    signature = Signature((TensorInput("x", "float32", (InputField("a", "float32"),)),), (Output(None, "y"),))
    first, second = records_of(format_, signature, {"x": np.ones((2, 1), np.float32)}, 2)
    assert (first.id, first.position, first.event_ms) == ('e"0 é', ("in", 0, 0), 1_700_000_000_000)
    assert (second.id, second.position, second.event_ms) == ('e"1 é', ('t"é', 70_000, 2**50), 1_700_000_000_001)
    origins = [
        (record.model, record.version, record.digest, record.role, record.revision, record.scored_ms)
        for record in (first, second)
    ]
    assert origins == [("m", "1", "sha256:0", "champion", 7, 99), ("m", "2", "sha256:1", "canary", 7, 99)]


def test_nan_keeps_its_bits_in_avro() -> None:
    signature = Signature((TensorInput("x", "float32", (InputField("a", "float32", False, math.nan),)),), (Output(None, "y"),))
    odd_nan = np.frombuffer(struct.pack("<I", 0x7FC00001), np.float32).reshape(1, 1)
    decoded = FeatureDecoder(signature).convert(records_of("avro", signature, {"x": odd_nan}, 1))
    assert decoded.tensors["x"].tobytes() == odd_nan.tobytes()


def test_a_field_that_feeds_two_tensors_is_logged_once_and_others_can_be_left_out() -> None:
    a, b = InputField("a", "float32"), InputField("b", "float32")
    signature = Signature((TensorInput("x", "float32", (a, b)), TensorInput("y", "float32", (b, a))), (Output(None, "y"),))
    tensors = {"x": np.array([[1, 2]], np.float32), "y": np.array([[2, 1]], np.float32)}
    assert records_of("json", signature, tensors, 1)[0].inputs == {"a": 1, "b": 2}
    (logged_input,) = select_logged(signature, ["b", "unknown"])
    assert (logged_input.tensor, logged_input.columns) == ("x", (1,))
    pieces = JsonFeatureEncoder([logged_input]).pieces(events(1), tensors, AnsweringVersions.single(CHAMPION, 1), 99)
    assert decode_json(texts_of(pieces, 1)[0]).inputs == {"b": 2}
    assert (
        decode_json(
            texts_of(JsonFeatureEncoder([]).pieces(events(1), tensors, AnsweringVersions.single(CHAMPION, 1), 99), 1)[0]
        ).inputs
        == {}
    )


def test_names_in_avro_are_distinct_and_a_valid_name_is_unchanged() -> None:
    assert avro_names(["a.b", "a_b", "a b", "a-b", "1", "é", "ok"]) == ["a_b_2", "a_b", "a_b_3", "a_b_4", "_1", "_", "ok"]


def test_each_input_has_a_default_in_the_avro_schema() -> None:
    fields = [InputField(f"f.{dtype}", dtype) for dtype in DTYPES]
    signature = Signature(
        tuple(TensorInput(f"t{field.dtype}", field.dtype, (field,)) for field in fields), (Output(None, "y"),)
    )
    inputs = json.loads(avro_schema(select_logged(signature, "all")))["fields"][-1]["type"]["fields"]
    assert [field["field"] for field in inputs] == [field.name for field in fields]
    assert all("default" in field for field in inputs)
