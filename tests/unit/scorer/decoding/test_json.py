"""JSON and rows of float32: errors are named, an invalid event never fails its batch, and all code paths agree."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scorer.dead_letters.reasons import Reason
from scorer.decoding.decoder_factory import create_decoder
from scorer.decoding.float32 import Float32Decoder
from scorer.decoding.json.arrays import JsonArrayDecoder, JsonEnvelopeDecoder
from scorer.decoding.json.decoder import JsonDecoder
from scorer.decoding.types import Decoded, FormatMismatch
from tests.benchmarks.bench import decode, scanner
from tests.benchmarks.bench.contents import FORMATS
from tests.unit.scorer.decoding.formats import (
    ARRAY,
    MIXED,
    NUMBERS,
    OPAQUE,
    WIDTH,
    assert_same,
    damaged,
    scattered,
    signature_of,
    texts,
    vectors,
)
from tests.unit.scorer.minimal import minimal

VALID = {"id": "1", "a": 1.0, "count": 2, "word": "w", "vector": [1, 2, 3.5]}


def decoder(max_bytes: int = 1_000) -> JsonDecoder:
    return JsonDecoder(MIXED, "id", max_bytes)


def encode(**changes: Any) -> bytes:
    return json.dumps({name: value for name, value in (VALID | changes).items() if value is not ...}).encode()


def rows(decoded: Decoded) -> list[list[Any]]:
    columns = [tensor.tolist() for tensor in decoded.tensors.values()]
    return [[column[row] for column in columns] for row in range(len(decoded.rows))]


INVALID: list[tuple[bytes | None, Reason]] = [
    (None, Reason.TOMBSTONE),
    (b"", Reason.MALFORMED),
    (b"{", Reason.MALFORMED),
    (b"[" * 5_000, Reason.MALFORMED),
    (b"[1]", Reason.WRONG_TYPE),
    (b"null", Reason.WRONG_TYPE),
    (encode()[:-1] + b', "z": "\xff"}', Reason.NOT_UTF8),
    (encode(a=...), Reason.MISSING_FIELD),
    (encode(a=None), Reason.MISSING_FIELD),
    (encode(vector=None), Reason.MISSING_FIELD),
    (encode(a="1"), Reason.WRONG_TYPE),
    (encode(a=True), Reason.WRONG_TYPE),
    (encode(word=3), Reason.WRONG_TYPE),
    (encode(count=1.5), Reason.WRONG_TYPE),
    (encode(vector=[1, 2]), Reason.WRONG_TYPE),
    (encode(vector=[1, 2, "3"]), Reason.WRONG_TYPE),
    (encode(id=[1]), Reason.WRONG_TYPE),
    (encode(flag=1), Reason.WRONG_TYPE),
    (encode(count=2**31), Reason.OUT_OF_RANGE),
    (encode(a=math.nan), Reason.NOT_FINITE),
    (encode(c=math.nan), Reason.NOT_FINITE),
    (encode(b=math.inf), Reason.NOT_FINITE),
    (encode(a=1e39), Reason.NOT_FINITE),
    (encode(vector=[1, 2, math.nan]), Reason.NOT_FINITE),
    (encode(padding="x" * 10_000), Reason.OVERSIZE),
]


@pytest.mark.parametrize(("value", "reason"), INVALID, ids=lambda v: v.value if isinstance(v, Reason) else None)
def test_an_invalid_event_is_named_and_its_neighbours_are_decoded(value: bytes | None, reason: Reason) -> None:
    decoded = decoder(6_000).decode([encode(id="left"), value, encode(id="right")])
    assert decoded.rows == [0, 2]
    assert decoded.ids == ["left", "right"]
    assert decoded.rejected[1].reason is reason
    assert str(decoded.rejected[1])
    assert rows(decoded) == rows(decoder().decode([encode(), encode()])) or np.isnan(decoded.tensors["x"][:, 1]).all()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (encode(a=math.nan), "field 'a' is nan; JSON has no NaN and no Infinity, which Python's json.dumps writes"),
        (encode(b=-math.inf), "field 'b' is -inf; JSON has no NaN"),
        (encode(vector=[1, 2, math.nan]), "field 'vector'[2] is nan; JSON has no NaN"),
    ],
)
def test_nan_and_infinity_of_python_are_explained(value: bytes, message: str) -> None:
    decoded = decoder().decode([encode(), value])
    assert str(decoded.rejected[1]).startswith(message)
    assert '"default": "nan" in the signature if the model takes NaN' in str(decoded.rejected[1])


@pytest.mark.parametrize("value", [encode(a=1e39), encode(b=-1e39)])
def test_a_number_beyond_the_dtype_is_not_explained_as_nan(value: bytes) -> None:
    assert str(decoder().decode([value]).rejected[0]).endswith("a number is not finite in float32")


def test_a_number_beyond_all_floats_in_an_array_is_named_with_its_place() -> None:
    value = encode(vector=[1, 77, 3]).replace(b"77", b"1e999")
    assert "got a number beyond the range of a float - at `$[1]`" in str(decoder().decode([value]).rejected[0])


def test_nan_is_a_missing_value_if_the_signature_allows_missing_values() -> None:
    decoded = decoder().decode([encode(b=math.nan)])
    assert decoded.rows == [0]
    assert math.isnan(decoded.tensors["x"][0, 1])


FLAT = signature_of(("x", "float32", ["a", "b"]))


INVALID_ARRAYS: list[tuple[bytes | None, Reason]] = [
    (None, Reason.TOMBSTONE),
    (b"[", Reason.MALFORMED),
    (b"1,2]", Reason.MALFORMED),
    (b'{"a": 1}', Reason.WRONG_TYPE),
    (b"[1]", Reason.MISSING_FIELD),
    (b"[1, null]", Reason.MISSING_FIELD),
    (b"[1, 2, 3]", Reason.WRONG_TYPE),
    (b"[1, [2]]", Reason.WRONG_TYPE),
    (b'[1, "2"]', Reason.WRONG_TYPE),
    (b"[1, true]", Reason.WRONG_TYPE),
    (b"[1, NaN]", Reason.NOT_FINITE),
    (b"[1, 1e39]", Reason.NOT_FINITE),
    (b"[1, 2" + b" " * 200 + b"]", Reason.OVERSIZE),
    (b'[1, "\xff"]', Reason.NOT_UTF8),
]


@pytest.mark.parametrize(("value", "reason"), INVALID_ARRAYS, ids=lambda v: v.value if isinstance(v, Reason) else None)
def test_an_invalid_array_is_named_and_its_neighbours_are_decoded(value: bytes | None, reason: Reason) -> None:
    decoded = JsonArrayDecoder(FLAT, 100).decode([b"[1, 2]", value, b"[3, 4]"])
    assert decoded.tensors["x"].tolist() == [[1, 2], [3, 4]]
    assert {row: poison.reason for row, poison in decoded.rejected.items()} == {1: reason}


def test_a_batch_that_is_too_large_for_one_text_is_read_in_parts() -> None:
    numbers = [[float(row), 0.5] for row in range(30_000)]
    values = [json.dumps(row).encode() for row in numbers]
    decoder = JsonArrayDecoder(FLAT, 100)
    assert decoder.decode(values).tensors["x"].tolist() == numbers
    values[20_000] = b"[1]"
    assert list(decoder.decode(values).rejected) == [20_000]


def test_two_events_that_are_valid_only_when_joined_are_both_invalid() -> None:
    for values in ([b"[1, 2],[3", b"4]"], [b"[1, 2],[3, 4]", b""]):
        assert JsonArrayDecoder(FLAT, 100).decode(values).rows == []


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"id": "e", "features": [1]}', Reason.MISSING_FIELD),
        (b'{"id": "e"}', Reason.MISSING_FIELD),
        (b'{"features": null}', Reason.MISSING_FIELD),
        (b"[1, 2]", Reason.WRONG_TYPE),
        (b'{"id": 1.5, "features": [1, 2]}', Reason.WRONG_TYPE),
    ],
)
def test_an_envelope_needs_features_and_a_valid_id(body: bytes, reason: Reason) -> None:
    decoded = JsonEnvelopeDecoder(FLAT, "id", 100).decode([b'{"id": 7, "ts": 5, "features": [1, 2]}', body])
    assert (decoded.rows, decoded.ids) == ([0], [7])
    assert decoded.rejected[1].reason is reason


@settings(max_examples=150)
@given(st.lists(vectors, min_size=1, max_size=3), st.data())
def test_the_fast_path_and_the_fallback_agree(rows: list[list[float]], data: st.DataObject) -> None:
    """A tombstone in the batch makes the decoder read every event singly."""
    for decoder, documents in (
        (JsonArrayDecoder(ARRAY, 10_000), [json.dumps(row) for row in rows]),
        (JsonEnvelopeDecoder(ARRAY, "id", 10_000), [json.dumps({"id": "e", "features": row}) for row in rows]),
        (JsonDecoder(ARRAY, "id", 10_000), [json.dumps({"id": "e", "vector": row}) for row in rows]),
    ):
        values = [text.encode() for text in documents]
        values[-1] = data.draw(damaged(values[-1]))
        assert_same(decoder.decode(values), decoder.decode([*values, None]), len(values))


@pytest.mark.parametrize(
    "text",
    [
        '{"id": "e", "vector": %s, "vector": [1]}',
        '{"id": "e", "vector": %s, "id": "f"}',
        '{"id": true, "vector": %s}',
        '{"id": 18446744073709551616, "vector": %s}',
        '{"id": "e", "vector": [%s]}',
        '{"id": "e", "vector": %s, "more": [1]}',
        '{"id": "\\u0041", "vector": %s}',
        '{"id": "e", "vector": %s} ',
        '{"id": "e", "vector": %s}x',
        '{"id": "e", "vect\\u006fr": %s}',
        '\ufeff{"id": "e", "vector": %s}',
    ],
)
def test_rare_json_is_read_equally_on_both_paths(text: str) -> None:
    numbers = json.dumps([1e-300, -0.0, 2**53 + 1, 2**64 - 1, 2**70, *[0.1] * 35])
    decoder = JsonDecoder(ARRAY, "id", 10_000)
    for array in (numbers, numbers.replace(str(2**70), "7"), numbers.replace("0.1]", "1e400]")):
        value = (text % array).encode()
        assert_same(decoder.decode([value]), decoder.decode([value, None]), 1)


def row(*numbers: float) -> bytes:
    return np.array([*numbers, *[0.5] * WIDTH], "<f4").tobytes()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, Reason.TOMBSTONE),
        (b"", Reason.MALFORMED),
        (row(1, 2, 3) + b"\0", Reason.MALFORMED),
        (row(1, 2, 3) * 10, Reason.OVERSIZE),
        (row(math.nan, 2, 3), Reason.NOT_FINITE),
        (row(1, 2, math.inf), Reason.NOT_FINITE),
    ],
)
def test_an_invalid_row_is_named_and_its_neighbours_are_decoded(value: bytes | None, reason: Reason) -> None:
    decoded = Float32Decoder(NUMBERS, 1_000).decode([row(1, math.nan, 3), value, row(4, 5, 6)])
    assert decoded.rows == [0, 2]
    assert decoded.rejected[1].reason is reason
    assert decoded.tensors["again"].tolist() == [[3, 1], [6, 4]]


opaque_rows = st.sampled_from([row(1, 2, 3), row(4, 5, 6), row(7, 8, 9), row(1, 2), b"", None])


@given(values=st.lists(opaque_rows, min_size=1, max_size=4))
def test_rows_may_lie_in_any_order_and_with_gaps(values: list[bytes | None]) -> None:
    decoder = Float32Decoder(NUMBERS, 1_000)
    for column in (texts(values), scattered(values)):
        assert_same(decoder.decode(column), decoder.decode(values), len(values))


@given(
    numbers=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    invalid=st.lists(st.sampled_from([b"", b"x" * 9, None]), max_size=1),
)
def test_binary_values_may_lie_in_any_order_and_with_gaps(numbers: list[int], invalid: list[bytes | None]) -> None:
    values = [np.full(WIDTH, number, "<f8").tobytes() for number in numbers] + invalid
    opaque = create_decoder(minimal(input={"topics": ["in"], "format": "bytes"}), OPAQUE)
    for column in (texts(values), scattered(values)):
        assert_same(opaque.decode(column), opaque.decode(values), len(values))


def test_a_signature_that_is_not_of_floats_is_refused() -> None:
    with pytest.raises(FormatMismatch, match="int32"):
        Float32Decoder(MIXED, 1_000)


@pytest.mark.parametrize("name", decode.CONTENTS)
def test_every_method_is_measured_and_decodes_to_the_same(name: str, tmp_path: Path) -> None:
    rows = decode.measured(name, tmp_path, 0.001)
    assert [row["way"] for row in rows if row["ours"]] == list(FORMATS)
    assert all(math.isfinite(row["us"]) and row["us"] > 0 for row in rows)


@pytest.mark.debian("cc")
@pytest.mark.parametrize("content", scanner.CONTENTS)
def test_both_methods_are_measured_at_every_size(content: str) -> None:
    rows = list(scanner.measured(content, [9, 1], rounds=1, least=1e-6))
    assert [row["batch"] for row in rows] == [9, 1]
    assert all(row[way]["us"] >= 0 for row in rows for way in ("native", "msgspec"))
