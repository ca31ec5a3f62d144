"""JSON arrays and envelopes: fast path and fall-back say the same, and the same as a plain decoder."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scorer.events.decoder import Reason
from scorer.events.json.arrays import JsonArrayDecoder, JsonEnvelopeDecoder
from scorer.events.json.objects import JsonDecoder
from tests.unit.scorer.events.formats import ARRAY, assert_same, damaged, signature_of, vectors

FLAT = signature_of(("x", "float32", ["a", "b"]))


BAD: list[tuple[bytes | None, Reason]] = [
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


@pytest.mark.parametrize(("value", "reason"), BAD, ids=lambda v: v.value if isinstance(v, Reason) else None)
def test_a_bad_array_is_named_and_its_neighbours_go_on(value: bytes | None, reason: Reason) -> None:
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


def test_two_events_that_would_be_good_only_together_are_both_bad() -> None:
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
def test_an_envelope_needs_its_features_and_an_id_that_is_one(body: bytes, reason: Reason) -> None:
    decoded = JsonEnvelopeDecoder(FLAT, "id", 100).decode([b'{"id": 7, "ts": 5, "features": [1, 2]}', body])
    assert (decoded.rows, decoded.ids) == ([0], [7])
    assert decoded.rejected[1].reason is reason


@settings(max_examples=150)
@given(st.lists(vectors, min_size=1, max_size=3), st.data())
def test_the_fast_path_and_the_fall_back_say_the_same(rows: list[list[float]], data: st.DataObject) -> None:
    """A tombstone in the batch makes every event be looked at singly."""
    for decoder, texts in (
        (JsonArrayDecoder(ARRAY, 10_000), [json.dumps(row) for row in rows]),
        (JsonEnvelopeDecoder(ARRAY, "id", 10_000), [json.dumps({"id": "e", "features": row}) for row in rows]),
        (JsonDecoder(ARRAY, "id", 10_000), [json.dumps({"id": "e", "vector": row}) for row in rows]),
    ):
        values = [text.encode() for text in texts]
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
def test_what_is_seldom_in_json_is_read_alike_on_both_paths(text: str) -> None:
    numbers = json.dumps([1e-300, -0.0, 2**53 + 1, 2**64 - 1, 2**70, *[0.1] * 35])
    decoder = JsonDecoder(ARRAY, "id", 10_000)
    for array in (numbers, numbers.replace(str(2**70), "7"), numbers.replace("0.1]", "1e400]")):
        value = (text % array).encode()
        assert_same(decoder.decode([value]), decoder.decode([value, None]), 1)
