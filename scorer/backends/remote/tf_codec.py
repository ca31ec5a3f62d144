"""Encoding and decoding of tensors for TensorFlow Serving."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scorer.backends.base import InferenceFailed
from scorer.backends.remote.protobuf_loader import messages

DTYPES = {
    "float32": 1,
    "float64": 2,
    "int32": 3,
    "uint8": 4,
    "int16": 5,
    "int8": 6,
    "string": 7,
    "int64": 9,
    "bool": 10,
    "uint16": 17,
    "float16": 19,
    "uint32": 22,
    "uint64": 23,
}
NAMES = {number: name for name, number in DTYPES.items()}
_VALUES = {
    "float32": "float_val",
    "float64": "double_val",
    "int64": "int64_val",
    "bool": "bool_val",
    "uint32": "uint32_val",
    "uint64": "uint64_val",
}  # the other numbers are in int_val

M = messages("tf_serving")


def encode(tensor: NDArray[Any], into: Any) -> None:
    """Write an array into the TensorProto `into`. An object array holds strings."""
    for size in tensor.shape:
        into.tensor_shape.dim.add(size=size)
    if tensor.dtype == object:
        into.dtype = DTYPES["string"]
        into.string_val.extend(str(value).encode() for value in tensor.ravel().tolist())
    else:
        into.dtype = DTYPES[tensor.dtype.name]
        into.tensor_content = tensor.tobytes()


def decode(proto: Any) -> NDArray[Any]:
    """Decode a TensorProto to an array. Strings become an object array of str.

    Raises:
        InferenceFailed: The dtype has no counterpart in numpy, or the number of values does not match the shape.
    """
    shape = [dim.size for dim in proto.tensor_shape.dim]
    name = NAMES.get(proto.dtype)
    try:
        if name == "string":
            return np.array([value.decode() for value in proto.string_val], object).reshape(shape)
        if name is None:
            raise ValueError(f"the TensorFlow dtype with the number {proto.dtype} is not supported")
        if proto.tensor_content:
            return np.frombuffer(proto.tensor_content, name).reshape(shape)
        if name == "float16":
            values = np.array(proto.half_val, np.uint16).view(np.float16)
        else:
            values = np.array(getattr(proto, _VALUES.get(name, "int_val")), name)
        count = int(np.prod(shape, dtype=np.int64))
        if 0 < len(values) < count:  # equal values at the end are sent once
            values = np.concatenate([values, np.repeat(values[-1:], count - len(values))])
        return values.reshape(shape)
    except (ValueError, UnicodeDecodeError) as error:
        raise InferenceFailed(f"an output cannot be read: {error}") from error
