"""Encoding of single values in Avro, without a library."""

from model_registry.untrusted_input.varint import encode_varint


def string(text: str) -> bytes:
    """Encode an Avro string."""
    data = text.encode()
    return long(len(data)) + data


def long(number: int) -> bytes:
    """Encode an integer as an Avro `int` or `long`, which is a zigzag varint."""
    zigzag = number << 1 if number >= 0 else (-number << 1) - 1
    return bytes((zigzag,)) if zigzag < 0x80 else encode_varint(zigzag)
