"""Fields that come from a record's key, headers and time, the same in every format."""

import json
import math
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scorer.dead_letters.reasons import Reason
from scorer.decoding import decoder_factory
from scorer.decoding.batch import Batch, Headers
from scorer.decoding.record_metadata import BatchMetadata, ListedMetadata
from scorer.decoding.types import Decoder
from scorer.settings import Settings
from tests.conformance.test_native_records import PLACES, batches
from tests.unit.scorer.decoding.formats import assert_same, signature_of
from tests.unit.scorer.decoding.schema_events import avro_encoder, configured, proto_encoder, settings_of

MIXED = signature_of(
    (
        "x",
        "float32",
        ["a", {"name": "store", "from": "header:store"}, {"name": "late", "from": "header:late", "default": "nan"}],
    ),
    ("n", "int32", [{"name": "number", "from": "key"}]),
    ("t", "int64", [{"name": "at", "from": "time"}]),
    ("s", "string", [{"name": "word", "from": "header:word", "default": "-"}, "b"]),
    ("f", "bool", [{"name": "flag", "from": "header:flag", "default": False}]),
)
"""Fields of the event, the key, headers and the time, in tensors of their own and together."""
BODIES: dict[str, tuple[Settings, Callable[[float, str], bytes]]] = {
    "json": (settings_of("json"), lambda a, b: json.dumps({"id": "e", "a": a, "b": b, "store": 9, "number": "x"}).encode()),
    "json-array": (settings_of("json-array", id="header:ce_id"), lambda a, b: json.dumps([a, b]).encode()),
    "json-envelope": (settings_of("json-envelope"), lambda a, b: json.dumps({"id": "e", "features": [a, b]}).encode()),
}
MIXED_AVRO = {"type": "record", "name": "E", "fields": [{"name": "a", "type": "float"}, {"name": "b", "type": "string"}]}


@pytest.fixture(scope="module", params=["json", "json-array", "json-envelope", "avro", "protobuf"])
def body(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Decoder, Callable[[float, str], bytes]]:
    """Return a decoder of MIXED and a function that writes its values."""
    folder, by_header = tmp_path_factory.mktemp("schemas"), {"id": "header:ce_id"}
    if request.param == "avro":
        encode = avro_encoder(MIXED_AVRO)
        configuration = configured(folder, "avro", json.dumps(MIXED_AVRO), **by_header)
        return decoder_factory.create_decoder(configuration, MIXED), lambda a, b: encode({"a": a, "b": b})
    if request.param == "protobuf":
        schema = 'syntax = "proto3"; message Event { optional float a = 1; optional string b = 2; }'
        encode = proto_encoder(schema)
        return decoder_factory.create_decoder(configured(folder, "protobuf", schema, **by_header), MIXED), lambda a, b: encode(
            {"a": a, "b": b}
        )
    configuration, write = BODIES[request.param]
    return decoder_factory.create_decoder(configuration, MIXED), write


def as_number(text: bytes | None, dtype: str) -> Any:
    """Return the number that a text holds, or None; raise AssertionError if it holds something else."""
    if text is None:
        return None
    value = json.loads(text.decode())
    if dtype == "bool" or value is None or (dtype == "float32" and isinstance(value, float) and math.isnan(value)):
        assert value is None or isinstance(value, bool | float)
        assert dtype != "bool" or not isinstance(value, float)
        return value if dtype == "bool" else None
    assert isinstance(value, int if dtype == "int32" else int | float)
    assert not isinstance(value, bool)
    assert abs(value) <= (float(np.finfo(np.float32).max) if dtype == "float32" else 2**31 - 1)
    return value


def expected(event: Mapping[str, Any]) -> dict[str, list[Any]] | None:
    """Return the rows of an event, or None if it is rejected."""
    try:
        store, late = as_number(event["store"], "float32"), as_number(event["late"], "float32")
        number, flag = as_number(event["number"], "int32"), as_number(event["flag"], "bool")
        word = "-" if event["word"] is None else event["word"].decode()
    except (AssertionError, ValueError, RecursionError):
        return None
    if store is None or number is None or not event["at"]:
        return None
    nan = math.nan if late is None else late
    return {"x": [event["a"], store, nan], "n": [number], "t": [event["at"]], "s": [word, event["b"]], "f": [bool(flag)]}


odd = st.sampled_from(
    [
        b"",
        b"1,2",
        b"[1]",
        b"1]",
        b"[2",
        b"NaN",
        b"1e999",
        b"-1e39",
        b"null",
        b"true",
        b'"1"',
        b"\xff",
        b"007",
        b" 3 ",
        b'"\\ud800"',
    ]
)
plain = st.integers(-(2**31) + 1, 2**31 - 1).map(lambda n: str(n).encode())
floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
decimal = floats.map(lambda n: repr(n).encode())
records = st.fixed_dictionaries(
    {
        "a": floats,
        "b": st.text(max_size=3),
        "store": st.none() | plain | decimal | odd,
        "late": st.none() | decimal | odd,
        "number": st.none() | plain | odd,
        "word": st.none() | st.text(max_size=3).map(str.encode) | odd,
        "flag": st.none() | st.sampled_from([b"true", b"false", b"1"]),
        "at": st.integers(0, 2**41),
    }
)
good = st.fixed_dictionaries(
    {
        "a": floats,
        "b": st.just("b"),
        "store": decimal,
        "late": decimal,
        "number": plain,
        "word": st.just(b"w"),
        "flag": st.sampled_from([b"true", b"false"]),
        "at": st.integers(1, 2**41),
    }
)


def batch_of(body: Callable[[float, str], bytes], events: Sequence[Mapping[str, Any]]) -> tuple[Batch, ...]:
    """Return the records of events as lists and as columns."""
    names = ("store", "late", "word", "flag")
    headers: list[Headers] = [
        [("store", b"of old"), *((n, e[n]) for n in names if e[n] is not None or n == "word")] for e in events
    ]
    for at, event in enumerate(events):
        if event["store"] is None:
            headers[at] = [pair for pair in headers[at] or () if pair[0] != "store"]
    return batches([(body(e["a"], e["b"]), e["number"], PLACES[0], e["at"]) for e in events], headers)


@settings(max_examples=50)
@given(events=st.lists(good, min_size=1, max_size=6) | st.lists(records, min_size=1, max_size=6))
def test_key_headers_and_time_mean_the_same_in_every_format(
    body: tuple[Decoder, Callable[[float, str], bytes]], events: list[dict[str, Any]]
) -> None:
    decoder, write = body
    listed, packed = batch_of(write, events)
    decoded = decoder.decode(listed.values, BatchMetadata(listed, range(len(events))))
    assert_same(decoder.decode(packed.values, BatchMetadata(packed, range(len(events)))), decoded, len(events))
    rows = [expected(event) for event in events]
    assert decoded.rows == [at for at, row in enumerate(rows) if row is not None]
    for name, tensor in decoded.tensors.items():
        expected_rows = [row[name] for row in rows if row is not None]
        assert tensor.shape == (len(expected_rows), {"x": 3, "s": 2}.get(name, 1))
        np.testing.assert_array_equal(tensor, np.array(expected_rows, tensor.dtype).reshape(tensor.shape))
    for row, poison in decoded.rejected.items():
        transferred = pickle.loads(
            pickle.dumps(BatchMetadata(packed, [row]).listed())
        )  # as for the process that examines events
        alone = decoder.decode([listed.values[row]], transferred)
        assert (alone.rejected[0].reason, str(alone.rejected[0])) == (poison.reason, str(poison))
        assert "field '" in str(poison) or "tensor '" in str(poison)


def test_an_absent_field_is_rejected_with_its_name_and_place() -> None:
    decoder, value = decoder_factory.create_decoder(settings_of("json"), MIXED), b'{"a": 1, "b": "x"}'
    store: Headers = [("store", b"1")]
    parts = ListedMetadata([b"1", b"1", None, b"1.5", b"1"], [1, 1, 1, 1, 0], [None, [("store", b"x")], store, store, store])
    assert {row: (poison.reason, str(poison)) for row, poison in decoder.decode([value] * 5, parts).rejected.items()} == {
        0: (Reason.MISSING_FIELD, "required field 'store' (header:store) is missing or null"),
        1: (Reason.WRONG_TYPE, "field 'store' (header:store): 'x' is not a valid float32"),
        2: (Reason.MISSING_FIELD, "required field 'number' (key) is missing or null"),
        3: (Reason.WRONG_TYPE, "field 'number' (key): Expected `int`, got `float`"),
        4: (Reason.MISSING_FIELD, "required field 'at' (time) is missing or null"),
    }
