"""Fields of bytes: event fields whose value is a byte string, written in base64 in JSON.

The bytes are a tensor's row as little-endian numbers. For a string tensor, they are a single string in UTF-8.
"""

import base64
import math
from typing import Any

import msgspec

from model_registry.package import shapes
from model_registry.package.signature import InputField

MAX_BYTES = 1 << 24  # largest size of the bytes of a field of varying length, for one event


def item_size(dtype: str) -> int:
    """Return the size of one number of a numeric or bool dtype in bytes."""
    return 1 if dtype == "bool" else int("".join(filter(str.isdigit, dtype))) // 8


def size(field: InputField) -> int:
    """Return the size in bytes of a value of the field; the largest size if the length of the value varies."""
    return (field.array or 1) * item_size(field.dtype)


def count_elements(name: str, dtype: str, shape: list[int] | None, length: int | None) -> int | None:
    """Return how many numbers the bytes of a field hold; None for a string tensor, whose bytes are a single string.

    Args:
        name: The field's name, for messages.
        dtype: The dtype of the tensor.
        shape: The tensor's shape in signature.json; None if it is not stated.
        length: The field's length in signature.json; None if it is not stated.

    Raises:
        ValueError: Neither shape nor length is stated, or they contradict each other.
    """
    if dtype == "string":
        if length is not None:
            raise ValueError(
                f'field {name!r}: in a string tensor, the bytes are a single string; remove "length" from the field'
            )
        return None
    if shape is None and length is None:
        raise ValueError(
            f'field {name!r}: the number of bytes is unknown; add "shape" to the tensor, for example '
            '{"tensor": ..., "shape": [224, 224, 3], "fields": [{"name": ..., "bytes": true}]}'
        )
    width = length if shape is None else math.prod(shape)
    if length is not None and length != width:
        raise ValueError(
            f'the shape {shape} has {width} elements, but the "length" of field {name!r} is {length}; remove "length"'
        )
    return width


def from_base64(text: Any) -> bytes:
    """Decode base64 (standard alphabet, padded). Raises ValueError."""
    try:
        return msgspec.convert(text if isinstance(text, str) else None, bytes)
    except msgspec.ValidationError:
        raise ValueError(f"{text!r:.60} is not base64 (standard alphabet, padded)") from None


def to_base64(data: bytes) -> str:
    """Encode bytes in base64 (standard alphabet, padded)."""
    return base64.b64encode(data).decode()


def find_fault(data: bytes, field: InputField) -> str | None:
    """Return the reason why `data` is not a valid value of a field of bytes; None if it is valid."""
    if field.dtype == "string":
        try:
            data.decode()
        except UnicodeDecodeError as error:
            return f"{len(data)} bytes are not UTF-8: {error.reason} at byte {error.start}"
        return None
    if fault := _size_fault(len(data), field):
        return fault
    if field.dtype == "bool" and (invalid := data.translate(None, b"\0\1")):
        return f"a byte of a bool is {invalid[0]}, but it must be 0 or 1"
    return None


def _size_fault(count: int, field: InputField) -> str | None:
    """Return the reason why a field's value cannot have this number of bytes; None if the number is valid."""
    if not field.varies:
        expected = f"{size(field)} were expected ({field.array or 1} of {field.dtype})"
        return f"{count} bytes, but {expected}" if count != size(field) else None
    shape = list(field.shape or ())
    if count > size(field):
        return f"{count} bytes, but at most {size(field)} were expected ({field.dtype}{shape} up to {field.max_length})"
    step = shapes.step_size(shape) * item_size(field.dtype)
    return f"{count} bytes, but a multiple of {step} was expected ({field.dtype}{shape})" if count % step else None


def golden_fault(value: Any, field: InputField) -> str | None:
    """Return why a field's value in a golden example is invalid: no base64, or unsuitable bytes; None if it is valid."""
    try:
        return find_fault(from_base64(value), field)
    except ValueError as error:
        return str(error)
