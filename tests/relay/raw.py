"""Writes a record to a broker byte by byte, as no Python client can: header names of any bytes. One record, one request.

Layouts: Kafka protocol guide, Produce version 7 with a request header version 1, and the record batch of magic 2.
"""

import socket
import struct

PRODUCE, VERSION = 0, 7
POLYNOMIAL = 0x82F63B78  # CRC-32C, reversed
Headers = list[tuple[bytes, bytes]]


def write(servers: str, topic: str, partition: int, value: bytes, headers: Headers, key: bytes = b"raw") -> int:
    """Its offset. Raises AssertionError where the broker does not take it."""
    host, _, port = servers.partition(":")
    records = _batch(key, value, headers)
    name = topic.encode()
    body = struct.pack(">hhii", -1, -1, 10_000, 1) + struct.pack(">h", len(name)) + name
    body += struct.pack(">iii", 1, partition, len(records)) + records
    request = struct.pack(">hhih", PRODUCE, VERSION, 1, 3) + b"raw" + body
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        stream = connection.makefile("rb")
        (length,) = struct.unpack(">i", stream.read(4))
        answer = stream.read(length)
    _, code, offset = struct.unpack_from(">ihq", answer, 4 + 4 + 2 + len(name) + 4)
    assert code == 0, f"the broker answers {code}"
    return int(offset)


def _batch(key: bytes, value: bytes, headers: Headers) -> bytes:
    fields = b"\0" + _number(0) + _number(0) + _sized(key) + _sized(value) + _number(len(headers))
    record = fields + b"".join(_sized(part) for header in headers for part in header)
    stamp = 1_700_000_000_000
    rest = struct.pack(">hiqqqhii", 0, 0, stamp, stamp, -1, -1, -1, 1) + _sized(record)
    return struct.pack(">qiibI", 0, len(rest) + 9, -1, 2, _crc32c(rest)) + rest


def _sized(text: bytes) -> bytes:
    return _number(len(text)) + text


def _number(number: int) -> bytes:
    """A zigzag varint."""
    number, found = number << 1, b""
    while number > 127:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


def _crc32c(text: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in text:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (POLYNOMIAL if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
