"""Record batches and Produce requests as bytes over a socket: everything that the protocol lets a client write.

Kafka's own clients do not let a test write a header name that is not UTF-8. Readers leave decompression to their client, so one
codec represents all.
"""

import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import zstandard

PRODUCE, VERSION = 0, 7  # the first version that carries zstd, and one without flexible fields
MAGIC = 2
CODECS = {"none": 0, "zstd": 4}
NO_PRODUCER = struct.pack(">qhi", -1, -1, -1)
ANSWER_SECONDS = 30.0


@dataclass(frozen=True)
class RawRecord:
    """One record; `timestamp` is Unix ms."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    timestamp: int = 0


class RawProducer:
    """Writes through one connection to a broker that leads every partition. `address` is `host:port`."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), ANSWER_SECONDS)
        self._count = 0

    def write(self, topic: str, partition: int, records: Sequence[RawRecord], codec: str = "none") -> int:
        """Write one batch; the broker's error code, 0 where it was taken."""
        batch = encoded(records, CODECS[codec])
        body = struct.pack(">hhii", -1, -1, int(ANSWER_SECONDS * 1_000), 1) + _text(topic)
        body += struct.pack(">iii", 1, partition, len(batch)) + batch
        self._count += 1
        request = struct.pack(">hhi", PRODUCE, VERSION, self._count) + _text("raw") + body
        self._socket.sendall(struct.pack(">i", len(request)) + request)
        answer = self._read(struct.unpack(">i", self._read(4))[0])
        at = 4 + 4 + 2 + len(topic.encode()) + 4 + 4  # correlation id, topics, its name, partitions, its number
        code: int = struct.unpack_from(">h", answer, at)[0]
        return code

    def close(self) -> None:
        self._socket.close()

    def _read(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = self._socket.recv(count - len(data))
            assert part, "the broker hung up"
            data += part
        return bytes(data)


def encoded(records: Sequence[RawRecord], codec: int) -> bytes:
    base = records[0].timestamp
    body = b"".join(_record(record, at, base) for at, record in enumerate(records))
    body = zstandard.ZstdCompressor().compress(body) if codec else body
    last, latest = len(records) - 1, max(record.timestamp for record in records)
    checked = struct.pack(">hiqq", codec, last, base, latest) + NO_PRODUCER + struct.pack(">i", len(records)) + body
    behind = struct.pack(">ibI", -1, MAGIC, crc32c(checked)) + checked
    return struct.pack(">qi", 0, len(behind)) + behind


def _record(record: RawRecord, at: int, base: int) -> bytes:
    body = b"\0" + _varint(record.timestamp - base) + _varint(at) + _sized(record.key) + _sized(record.value)
    body += _varint(len(record.headers)) + b"".join(_sized(name) + _sized(value) for name, value in record.headers)
    return _varint(len(body)) + body


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _sized(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def _varint(number: int) -> bytes:
    remaining, septets = (number << 1) ^ (number >> 63), bytearray()
    while remaining > 0x7F:
        septets.append(remaining & 0x7F | 0x80)
        remaining >>= 7
    return bytes([*septets, remaining])


def _crc_table() -> list[int]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
        table.append(number)
    return table


TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    checksum, table = 0xFFFFFFFF, TABLE
    for byte in data:
        checksum = checksum >> 8 ^ table[(checksum ^ byte) & 0xFF]
    return checksum ^ 0xFFFFFFFF
