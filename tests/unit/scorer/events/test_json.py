"""JSON objects to tensors: whole batches and single events agree, and one bad event never fails its batch."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_registry.package.signature import Signature
from scorer.events.decoder import Decoded, Reason
from scorer.events.json.objects import JsonDecoder

SIGNATURE = Signature.parse(
    json.dumps(
        {
            "inputs": [
                {
                    "tensor": "x",
                    "dtype": "float32",
                    "fields": [
                        "a",
                        {"name": "b", "required": False, "default": "nan"},
                        {"name": "c", "required": False, "default": 1.5},
                    ],
                },
                {"tensor": "n", "dtype": "int32", "fields": ["count", {"name": "size", "default": 7}]},
                {"tensor": "s", "dtype": "string", "fields": ["word", {"name": "other", "default": "-"}]},
                {"tensor": "f", "dtype": "bool", "fields": [{"name": "flag", "default": True}]},
                {"tensor": "v", "dtype": "float64", "fields": [{"name": "vector", "array": True, "length": 3}]},
            ],
            "output": {"tensor": "y"},
        }
    )
)
GOOD = {"id": "1", "a": 1.0, "count": 2, "word": "w", "vector": [1, 2, 3.5]}


def decoder(max_bytes: int = 1_000) -> JsonDecoder:
    return JsonDecoder(SIGNATURE, "id", max_bytes)


def encode(**changes: Any) -> bytes:
    return json.dumps({name: value for name, value in (GOOD | changes).items() if value is not ...}).encode()


def rows(decoded: Decoded) -> list[list[Any]]:
    columns = [tensor.tolist() for tensor in decoded.tensors.values()]
    return [[column[row] for column in columns] for row in range(len(decoded.rows))]


def test_fields_become_the_tensors_that_the_signature_names() -> None:
    decoded = decoder().decode([encode(), encode(b=2, c=None, size=9, other="o", flag=False, id=12)])
    assert decoded.rows == [0, 1]
    assert decoded.ids == ["1", 12]
    assert {name: (tensor.shape, tensor.dtype.name) for name, tensor in decoded.tensors.items()} == {
        "x": ((2, 3), "float32"),
        "n": ((2, 2), "int32"),
        "s": ((2, 2), "object"),
        "f": ((2, 1), "bool"),
        "v": ((2, 3), "float64"),
    }
    np.testing.assert_array_equal(decoded.tensors["x"], np.array([[1, math.nan, 1.5], [1, 2, 1.5]], np.float32))
    assert decoded.tensors["n"].tolist() == [[2, 7], [2, 9]]
    assert decoded.tensors["s"].tolist() == [["w", "-"], ["w", "o"]]
    assert decoded.tensors["f"].tolist() == [[True], [False]]
    assert decoded.tensors["v"].tolist() == [[1, 2, 3.5], [1, 2, 3.5]]


BAD: list[tuple[bytes | None, Reason]] = [
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


@pytest.mark.parametrize(("value", "reason"), BAD, ids=lambda v: v.value if isinstance(v, Reason) else None)
def test_a_bad_event_is_named_and_its_neighbours_go_on(value: bytes | None, reason: Reason) -> None:
    decoded = decoder(6_000).decode([encode(id="left"), value, encode(id="right")])
    assert decoded.rows == [0, 2]
    assert decoded.ids == ["left", "right"]
    assert decoded.rejected[1].reason is reason
    assert str(decoded.rejected[1])
    assert rows(decoded) == rows(decoder().decode([encode(), encode()])) or np.isnan(decoded.tensors["x"][:, 1]).all()


def test_nan_stands_for_missing_where_the_signature_knows_missing() -> None:
    decoded = decoder().decode([encode(b=math.nan)])
    assert decoded.rows == [0]
    assert math.isnan(decoded.tensors["x"][0, 1])


def test_an_empty_batch_has_empty_tensors() -> None:
    decoded = decoder().decode([])
    assert decoded.rows == []
    assert decoded.tensors["x"].shape == (0, 3)
    assert decoded.tensors["s"].shape == (0, 2)


def test_a_batch_of_nothing_but_bad_events_is_all_rejected() -> None:
    decoded = decoder().decode([b"{", None])
    assert decoded.rows == []
    assert sorted(decoded.rejected) == [0, 1]
    assert decoded.tensors["v"].shape == (0, 3)


floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
good_events = st.fixed_dictionaries(
    {
        "a": floats,
        "count": st.integers(-(2**31), 2**31 - 1),
        "word": st.text(max_size=5),
        "vector": st.lists(floats, min_size=3, max_size=3),
    },
    optional={
        "b": st.none() | floats,
        "c": st.none() | floats,
        "size": st.none() | st.integers(0, 100),
        "other": st.none() | st.text(max_size=3),
        "flag": st.none() | st.booleans(),
        "id": st.none() | st.text(max_size=5) | st.integers(0, 2**40),
        "unknown": st.recursive(st.none() | st.integers(), st.lists, max_leaves=3),
    },
)


def plain(event: dict[str, Any]) -> list[list[Any]]:
    """A decoder that could not be plainer."""

    def field(name: str, default: Any = None) -> Any:
        return default if event.get(name) is None else event[name]

    return [
        [np.float32(field("a")), np.float32(field("b", math.nan)), np.float32(field("c", 1.5))],
        [field("count"), field("size", 7)],
        [field("word"), field("other", "-")],
        [field("flag", True)],
        field("vector"),
    ]


@given(st.lists(good_events, max_size=8), st.lists(st.binary(max_size=30) | st.none(), max_size=4), st.randoms())
def test_any_mixture_agrees_with_a_plain_decoder(good: list[dict[str, Any]], noise: list[bytes | None], random: Any) -> None:
    values: list[tuple[bytes | None, dict[str, Any] | None]] = [(json.dumps(event).encode(), event) for event in good]
    values += [(bad, None) for bad in noise]
    random.shuffle(values)
    decoded = decoder(10_000).decode([value for value, _ in values])
    expected = [(at, event) for at, (_, event) in enumerate(values) if event is not None]
    assert decoded.rows == [at for at, _ in expected]
    assert sorted(decoded.rejected) == [at for at, (_, event) in enumerate(values) if event is None]
    assert decoded.ids == [event.get("id") for _, event in expected]
    for row, (_, event) in enumerate(expected):
        for tensor, wanted in zip(decoded.tensors.values(), plain(event), strict=True):
            np.testing.assert_array_equal(tensor[row], np.array(wanted, tensor.dtype))


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_no_bytes_ever_raise(values: list[bytes]) -> None:
    decoded = decoder().decode(values)
    assert sorted([*decoded.rows, *decoded.rejected]) == list(range(len(values)))
