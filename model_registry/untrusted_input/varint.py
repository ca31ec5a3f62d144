"""Variable-length integers (varints) of Protobuf and Avro.

Each byte has seven bits of the number, the lowest bits first; its eighth bit is set if a further byte follows.
`scorer/decoding/schema_formats/varints.py` reads whole columns of varints with numpy.
"""

from mmap import mmap

LONGEST = 10  # bytes of an unsigned 64-bit integer


def read_varint(data: bytes | mmap, at: int, end: int, longest: int = LONGEST) -> tuple[int, int]:
    """Return the unsigned number that starts at byte `at`, and the position after its last byte.

    Raises:
        ValueError: The number does not end before `end` or within `longest` bytes.
    """
    value = 0
    for shift in range(0, 7 * longest, 7):
        if at >= end:
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
    raise ValueError(f"the number at byte {at} is incomplete")


def encode_varint(number: int) -> bytes:
    """Encode a non-negative number as a varint."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
