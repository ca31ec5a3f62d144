"""Encoding and decoding of tensors for the Open Inference Protocol."""

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scorer.backends.remote.protobuf_loader import messages

NAMES = {
    "BOOL": "bool",
    "BYTES": "string",
    **{f"FP{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"{kind}{bits}": f"{kind.lower()}{bits}" for kind in ("INT", "UINT") for bits in (8, 16, 32, 64)},
}
"""The numpy dtype name, or "string", of each datatype of the protocol."""
_DATATYPES = {name: datatype for datatype, name in NAMES.items()}
_CONTENTS = {
    "BOOL": "bool_contents",
    "INT64": "int64_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
}

M = messages("open_inference")


def describe(tensor: NDArray[Any]) -> str:
    """Return the protocol's name for the dtype of an array. An object array holds strings."""
    return "BYTES" if tensor.dtype == object else _DATATYPES[tensor.dtype.name]


def pack(tensor: NDArray[Any]) -> bytes:
    """Encode an array in row-major order, little-endian. The length of each string, in 4 bytes, precedes the string."""
    if tensor.dtype != object:
        return tensor.tobytes()
    values = (str(value).encode() for value in tensor.ravel().tolist())
    return b"".join(struct.pack("<I", len(value)) + value for value in values)


def unpack(tensor: Any, raw: bytes | None) -> NDArray[Any]:
    """Decode an output tensor to an array. Strings become an object array of str.

    Args:
        tensor: the output tensor of the response.
        raw: the tensor's entry in the raw contents; None if the values are in the tensor's typed contents.

    Raises:
        ValueError: The content does not match the shape or the datatype, or a string is not UTF-8.
    """
    shape = list(tensor.shape)
    if tensor.datatype == "BYTES":
        values = _strings(raw) if raw is not None else list(tensor.contents.bytes_contents)
        return np.array([value.decode() for value in values], object).reshape(shape)
    if tensor.datatype not in NAMES:
        raise ValueError(f"datatype {tensor.datatype} is not supported")
    if raw is not None:
        return np.frombuffer(raw, NAMES[tensor.datatype]).reshape(shape)
    if tensor.datatype not in _CONTENTS:
        raise ValueError(f"datatype {tensor.datatype} needs raw contents, but the response has none")
    return np.array(getattr(tensor.contents, _CONTENTS[tensor.datatype]), NAMES[tensor.datatype]).reshape(shape)


def _strings(raw: bytes) -> list[bytes]:
    values = []
    at = 0
    while at < len(raw):
        if at + 4 > len(raw):
            raise ValueError("the raw contents end within the 4-byte length of a string")
        (length,) = struct.unpack_from("<I", raw, at)
        values.append(raw[at + 4 : at + 4 + length])
        at += 4 + length
    return values
