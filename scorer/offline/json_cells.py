"""Conversion of the cells of Parquet and CSV files to JSON texts, from which events are built.

Numbers keep their exact text.
"""

import base64
import json
import math
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import orjson

from model_registry.package.signature import InputField
from publisher.errors import USAGE, Fatal
from scorer.data_files.arrow import load_pyarrow

NULL = b"null"
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
NOT_FINITE = {"nan": b"NaN", "inf": b"Infinity", "infinity": b"Infinity", "-inf": b"-Infinity", "-infinity": b"-Infinity"}
"""From a CSV cell in lower case to the JSON text that Python writes for this number. The decoder rejects these numbers by name,
or reads them as missing if the signature allows NaN."""
BOOLEANS = {"true": b"true", "false": b"false"}


def json_text(text: str) -> bytes:
    """Return a text as a JSON string. Surrogate escapes become the original bytes, which are not UTF-8."""
    try:
        return orjson.dumps(text)
    except orjson.JSONEncodeError:
        return json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogateescape")


def cell_json(text: str, field: InputField | None) -> bytes:
    """Return a cell of a CSV file as JSON, in the form that its field needs. An empty cell is null.

    A cell that is not a value of the field's type becomes a JSON string, which the decoder rejects with the reason.

    Args:
        text: the text of the cell.
        field: the field; None for the id of the event, or for objects and arrays that contain fields.
    """
    if text == "":
        return NULL
    if field is None:
        return text.encode() if text[0] in "{[" and _is_json(text) else json_text(text)
    if field.raw or (field.dtype == "string" and field.array is None):
        return json_text(text)
    if field.array is not None:
        return text.encode() if _is_json(text) else json_text(text)
    if field.dtype == "bool" and text.lower() in BOOLEANS:
        return BOOLEANS[text.lower()]
    if NUMBER.fullmatch(text):
        return text.encode()
    return NOT_FINITE.get(text.lower()) or json_text(text)


def _is_json(text: str) -> bool:
    try:
        orjson.loads(text)
    except ValueError:
        return False
    return True


def column_json(name: str, array: Any, *, nan: bytes = b"NaN") -> list[bytes]:
    """Return each value of an Arrow array as JSON.

    A decimal is a number with all its digits, a float32 has its shortest text, bytes are base64, and times are ISO 8601 (UTC if
    they have a zone).

    Args:
        name: the name of the column for messages.
        array: a `pyarrow.Array`.
        nan: the text of NaN. With `null`, infinities are also written as null, so that the result is valid JSON.

    Raises:
        Fatal: With exit code 2 if JSON has no form for values of this type, such as durations.
    """
    pa = load_pyarrow()
    types = pa.types
    kind = array.type
    if types.is_dictionary(kind):
        return column_json(name, array.dictionary_decode(), nan=nan)
    if types.is_struct(kind):
        return _structs(name, array, nan)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _lists(name, array, nan)
    if types.is_map(kind) and _is_text(types, kind.key_type):
        return _maps(name, array, nan)
    texts = _scalars(array, nan)
    if texts is None:
        raise Fatal(
            f"the column {name!r} has the type {kind}, which JSON cannot represent", "convert or drop the column", USAGE
        )
    return texts


def _scalars(array: Any, nan: bytes) -> list[bytes] | None:
    """Return the values of a column without nested values as JSON texts; None if JSON has no form for this type."""
    pa = load_pyarrow()
    types = pa.types
    kind = array.type
    if types.is_floating(kind):
        return _floats(array, nan)
    if types.is_timestamp(kind):
        utc = array if kind.tz is None else array.cast(pa.timestamp(kind.unit, "UTC"))
        return [NULL if text is None else json_text(text.replace(" ", "T")) for text in utc.cast(pa.string()).to_pylist()]
    if types.is_date(kind) or types.is_time(kind):
        return _encode(array.cast(pa.string()))
    if types.is_null(kind) or types.is_boolean(kind) or types.is_integer(kind) or _is_text(types, kind):
        return _encode(array)
    if types.is_decimal(kind):
        return [_decimal(value) for value in array.to_pylist()]
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return [NULL if value is None else json_text(base64.b64encode(value).decode()) for value in array.to_pylist()]
    return None


def _is_text(types: Any, kind: Any) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _encode(array: Any) -> list[bytes]:
    return [orjson.dumps(value) for value in array.to_pylist()]


def _decimal(value: Decimal | None) -> bytes:
    return NULL if value is None else format(value, "f").encode()


def _floats(array: Any, nan: bytes) -> list[bytes]:
    """Return floats as JSON. The text of a number is the shortest one for its precision."""
    pa = load_pyarrow()
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    single = not pa.types.is_float64(array.type)  # a half float has an exact float32
    numbers = array.fill_null(0.0).to_numpy(zero_copy_only=False).astype(np.float32 if single else np.float64)
    if not len(numbers):
        return []
    texts = orjson.dumps(np.ascontiguousarray(numbers), option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].split(b",")
    for row in np.flatnonzero(~np.isfinite(numbers) | ~valid).tolist():
        texts[row] = _special(float(numbers[row]), nan) if valid[row] else NULL
    return texts


def _special(number: float, nan: bytes) -> bytes:
    if math.isnan(number) or nan == NULL:
        return nan
    return b"Infinity" if number > 0 else b"-Infinity"


def _structs(name: str, array: Any, nan: bytes) -> list[bytes]:
    columns = [
        column_json(f"{name}.{field.name}", child, nan=nan) for field, child in zip(array.type, array.flatten(), strict=True)
    ]
    objects = join_objects([field.name for field in array.type], columns, len(array))
    valid = array.is_valid().to_pylist()
    return [text if is_valid else NULL for text, is_valid in zip(objects, valid, strict=True)]


def join_objects(names: Sequence[str], columns: Sequence[Sequence[bytes]], count: int) -> list[bytes]:
    """Return one JSON object per row, from the JSON texts of its columns."""
    if not names:
        return [b"{}"] * count
    heads = [json_text(name) + b":" for name in names]
    return [
        b"{" + b",".join([head + cell for head, cell in zip(heads, row, strict=True)]) + b"}"
        for row in zip(*columns, strict=True)
    ]


def _lists(name: str, array: Any, nan: bytes) -> list[bytes]:
    elements = column_json(name, array.flatten(), nan=nan)
    texts: list[bytes] = []
    position = 0
    for length in load_pyarrow().compute.list_value_length(array).to_pylist():
        if length is None:
            texts.append(NULL)
        else:
            texts.append(b"[" + b",".join(elements[position : position + length]) + b"]")
            position += length
    return texts


def _maps(name: str, array: Any, nan: bytes) -> list[bytes]:
    pa = load_pyarrow()
    entries = array.cast(pa.list_(pa.struct([("key", pa.string()), ("value", array.type.item_type)])))
    pairs = entries.flatten()
    keys, values = pairs.flatten()
    texts = [key + b":" + value for key, value in zip(_encode(keys), column_json(name, values, nan=nan), strict=True)]
    objects: list[bytes] = []
    position = 0
    for length in pa.compute.list_value_length(entries).to_pylist():
        if length is None:
            objects.append(NULL)
        else:
            objects.append(b"{" + b",".join(texts[position : position + length]) + b"}")
            position += length
    return objects
