"""Helpers of the tests of input formats: signatures, events for them, a plain decoder, and damaged events."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from model_registry.package.event_tree import build_event
from model_registry.package.json_path import parse
from model_registry.package.signature import Signature
from model_registry.package.signature_schema import parse_signature
from scorer.decoding.types import Decoded
from scorer.native.byte_columns import PADDING, ByteColumn
from scorer.native.load import native_library
from scorer.native.scanner import NumberField, Scanner

WIDTH = 40


def signature_of(*inputs: tuple[str, str, list[Any]]) -> Signature:
    tensors = [{"tensor": name, "dtype": dtype, "fields": fields} for name, dtype, fields in inputs]
    return parse_signature(json.dumps({"inputs": tensors, "output": {"tensor": "y"}}))


B = {"name": "b", "default": "nan"}
C = {"name": "c", "default": 1.5}
VECTOR = {"name": "vector", "array": True, "length": WIDTH}
NUMBERS = signature_of(("x", "float32", ["a", B, C]), ("v", "float64", [VECTOR]), ("again", "float32", [C, "a"]))
"""Floats only, an array that is wide enough for every fast path, and fields that feed two tensors."""
OPAQUE = signature_of(("x", "float64", [{"name": "vector", "bytes": True, "length": WIDTH, "from": "value"}]))
"""Bytes that are the whole value."""
ARRAY = signature_of(("v", "float32", [VECTOR]))
MIXED = signature_of(
    ("x", "float32", ["a", B, C]),
    ("n", "int32", ["count", {"name": "size", "default": 7}]),
    ("s", "string", ["word", {"name": "other", "default": "-"}]),
    ("f", "bool", [{"name": "flag", "default": True}]),
    ("v", "float64", [{**VECTOR, "length": 3}]),
)
"""Every kind of dtype, and fields with defaults."""

PATHS = {
    "a": "after.a",
    "b": "after.b",
    "count": "after.more.count",
    "vector": "after.more.vector",
    "word": "items[1].word",
    "size": "items[1].size",
    "c": "items[2].c",
    "other": "note.other",
    "id": "meta.id",
}
"""The paths of the fields of MIXED in nested events. Other fields are at the top."""


def by_path(signature: Signature, paths: Mapping[str, str]) -> Signature:
    """Return the signature with the fields read from these paths."""
    document = json.loads(signature.to_json())
    for tensor in document["inputs"]:
        entries = [{"name": entry} if isinstance(entry, str) else entry for entry in tensor["fields"]]
        tensor["fields"] = [entry | ({"path": paths[entry["name"]]} if entry["name"] in paths else {}) for entry in entries]
    return parse_signature(json.dumps(document))


def nested(event: Mapping[str, Any]) -> dict[str, Any]:
    """Convert an event for MIXED to one for NESTED."""
    return build_event((parse(PATHS.get(name, name)), value) for name, value in event.items())


NESTED = by_path(MIXED, PATHS)
"""MIXED, its fields in objects and arrays."""

floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
vectors = st.lists(floats, min_size=WIDTH, max_size=WIDTH)
number_events = st.fixed_dictionaries(
    {"id": st.text(max_size=5), "a": floats, "vector": vectors},
    optional={"b": st.none() | floats, "c": st.none() | floats},
)

mixed_events = st.fixed_dictionaries(
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
    },
)


def plain(signature: Signature, event: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the rows of the tensors for one valid event."""
    tensors: dict[str, list[Any]] = {}
    for tensor in signature.inputs:
        row = tensors[tensor.tensor] = []
        for field in tensor.fields:
            value: Any = event.get(field.name)
            if value is None:
                value = [field.default] * field.array if field.array else field.default
            row += value if field.array else [value]
    return tensors


def assert_plain(decoded: Decoded, signature: Signature, events: Sequence[Mapping[str, Any] | None]) -> None:
    """Assert that each event was decoded as by the plain decoder, and that each None was rejected."""
    assert decoded.rows == [at for at, event in enumerate(events) if event is not None]
    assert sorted(decoded.rejected) == [at for at, event in enumerate(events) if event is None]
    rows = [plain(signature, event) for event in events if event is not None]
    for tensor in signature.inputs:
        actual = decoded.tensors[tensor.tensor]
        assert actual.shape == (len(rows), tensor.width)
        assert actual.dtype == (np.dtype(object) if tensor.dtype == "string" else np.dtype(tensor.dtype))
        expected = [[math.nan if v is None else v for v in row[tensor.tensor]] for row in rows]
        if rows:
            np.testing.assert_array_equal(actual, np.array(expected, actual.dtype))


def assert_same(first: Decoded, second: Decoded, count: int) -> None:
    """Assert that the first `count` events are decoded equally: values, ids, reasons, explanations."""
    decoded_count = sum(row < count for row in first.rows)
    assert [row for row in first.rows if row < count] == [row for row in second.rows if row < count]
    assert list(first.ids[:decoded_count]) == list(second.ids[:decoded_count])
    assert first.tensors.keys() == second.tensors.keys()
    for name, tensor in first.tensors.items():
        assert tensor.dtype == second.tensors[name].dtype
        np.testing.assert_array_equal(tensor[:decoded_count], second.tensors[name][:decoded_count])
    reasons = [{row: (p.reason, str(p)) for row, p in d.rejected.items() if row < count} for d in (first, second)]
    assert reasons[0] == reasons[1]


@st.composite
def damaged(draw: st.DrawFn, value: bytes) -> bytes:
    """Draw the same bytes with one error, which may leave the event valid."""
    at = draw(st.integers(0, len(value)))
    match draw(st.sampled_from(["cut", "drop", "insert", "change", "twice"])):
        case "cut":
            return value[:at]
        case "drop":
            return value[:at] + value[at + 1 :]
        case "insert":
            inserted = draw(st.sampled_from([b"[", b"]", b",", b"0", b" ", b'"', b"null", b"\xff", b"\0"]))
            return value[:at] + inserted + value[at:]
        case "change":
            return value[:at] + draw(st.binary(min_size=1, max_size=1)) + value[at + 1 :]
        case _:
            return value + value


def scanner_of(names: Sequence[str], absent: Sequence[float | None] = ()) -> Scanner:
    """Return a scanner for numbers of these names."""
    return scanner_for(
        [NumberField(name, default) for name, default in zip(names, absent or [None] * len(names), strict=True)], "id"
    )


def scanner_for(fields: Sequence[NumberField], id_name: str | None = None, *, bare: bool = False) -> Scanner:
    library = native_library().library
    assert library is not None
    return Scanner(library, fields, id_name, bare=bare)


def texts(values: Sequence[bytes | None]) -> ByteColumn:
    """Return a column in the form that the native library takes."""
    bounds = np.cumsum([0, *(len(value or b"") for value in values)]).astype(np.int64)
    nulls = np.array([value is None for value in values], np.uint8)
    text = np.frombuffer(b"".join([*(value or b"" for value in values), PADDING]), np.uint8)
    return ByteColumn(text, bounds[:-1], bounds[1:], nulls)


def scattered(values: Sequence[bytes | None]) -> ByteColumn:
    """Return a column whose texts lie in the reverse order, with other bytes between them."""
    reverse = texts([part for value in reversed(values) for part in (b"{1,", value)])
    return reverse.part(np.arange(2 * len(values) - 1, -1, -2, dtype=np.int64))
