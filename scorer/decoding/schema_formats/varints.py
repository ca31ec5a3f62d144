"""Whole numbers as Avro and Protobuf write them: seven bits a byte, the lowest first, the eighth says that more follows."""

import numpy as np
from numpy.typing import NDArray

LONGEST_VARINT = 9  # bytes; longer ones exist, and are left to the format's own reader


def varints(buffer: NDArray[np.uint8], at: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """The number at each position, where it ends, and whether it does so within LONGEST_VARINT bytes."""
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


def varint(value: bytes, at: int) -> tuple[int, int]:
    """The number at `at` and where it ends. Raises IndexError where it does not end, or is longer than is read here."""
    number = 0
    for shift in range(LONGEST_VARINT):
        byte = value[at + shift]
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return number, at + shift + 1
    raise IndexError


def encoded(number: int) -> bytes:
    """A number that is not negative as a varint."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def message_path(value: bytes, at: int) -> tuple[list[int], int]:
    """The path behind the id in Confluent's header, and where it ends. Raises IndexError where there is none."""
    count, at = _signed(value, at)
    if count == 0:
        return [0], at
    if not 0 < count <= LONGEST_VARINT:
        raise IndexError
    path = []
    for _ in range(count):
        index, at = _signed(value, at)
        if index < 0:
            raise IndexError
        path.append(index)
    return path, at


def _signed(value: bytes, at: int) -> tuple[int, int]:
    number, at = varint(value, at)
    return (number >> 1) ^ -(number & 1), at
