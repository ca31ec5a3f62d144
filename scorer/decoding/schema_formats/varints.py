"""Decoding of the varints of Avro and Protobuf.

A varint has seven bits per byte, the lowest bits first. The eighth bit is set if another byte follows.
"""

import numpy as np
from numpy.typing import NDArray

from model_registry.untrusted_input.varint import read_varint

LONGEST_VARINT = 9  # bytes; the format's own reader decodes longer varints


def varints(buffer: NDArray[np.uint8], at: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Decode the varint at each position `at` of the buffer.

    Returns:
        Three arrays: the numbers, the position after each varint, and whether each varint ends within LONGEST_VARINT bytes.
    """
    last = len(buffer) - 1
    number = np.zeros(len(at), np.int64)
    more = np.ones(len(at), np.bool_)
    for shift in range(0, 7 * LONGEST_VARINT, 7):
        byte = buffer[np.minimum(at, last)]
        number |= np.where(more, (byte & 0x7F).astype(np.int64) << shift, 0)
        at = at + more
        more &= byte >= 0x80
        if not more.any():
            break
    return number, at, ~more


def message_path(value: bytes, at: int) -> tuple[list[int], int]:
    """Decode the path of a Protobuf message type, which follows the schema id in Confluent's prefix.

    Returns:
        The path, and the position after the path.

    Raises:
        ValueError: the bytes at `at` are not a path.
    """
    count, at = _signed(value, at)
    if count == 0:
        return [0], at
    if not 0 < count <= LONGEST_VARINT:
        raise ValueError("the bytes are not the path of a message type")
    path = []
    for _ in range(count):
        index, at = _signed(value, at)
        if index < 0:
            raise ValueError("the bytes are not the path of a message type")
        path.append(index)
    return path, at


def _signed(value: bytes, at: int) -> tuple[int, int]:
    number, at = read_varint(value, at, len(value), LONGEST_VARINT)
    return (number >> 1) ^ -(number & 1), at
