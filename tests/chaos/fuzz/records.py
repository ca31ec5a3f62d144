"""Random records, from a seed alone: good events, damaged ones, and everything that the protocol allows around them."""

import json
import random
import struct
import time
from collections.abc import Callable

from tests.chaos.fuzz.raw import CODECS, RawRecord

DAY_MS = 86_400_000
LARGE = 1_000_000  # bytes
NAMES = b"ce_id deadline x-origin x-hops traceparent tracestate dead.source dead.reason dead.at".split()
TEXTS = (
    b"",
    b"1",
    b"9" * 5_000,
    b"-1",
    "\u0661".encode(),
    b"\xff\xfe",
    b"eu/topic/0/1",
    b"a/" * 200,
    b"%zz",
    b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01",
)
PIECES = (
    b"\\ud83d",
    b"\xed\xa0\xbd",
    b"NaN",
    b"1e999",
    b"9" * 5_000,
    b"[" * 3_000,
    b'{"a":' * 2_000,
    b"\0",
    b"null",
    b'"',
    b"\xff",
    b"-0",
    b"0x1",
    b"true",
)


def _json(event: dict[str, object]) -> bytes:
    return json.dumps(event).encode()


EVENTS: dict[str, Callable[[dict[str, object]], bytes]] = {
    "json": _json,
    "json-array": lambda event: json.dumps([event["a"], event["b"]]).encode(),
    "json-envelope": lambda event: _json({"id": event["id"], "features": [event["a"], event["b"]]}),
    "float32": lambda event: struct.pack("<ff", event["a"], event["b"]),
}
"""A good event in each format that needs no schema."""


class Records:
    """The records of one seed and format. The events are those of the linear test model."""

    def __init__(self, seed: int, format_: str) -> None:
        self._random = random.Random(seed)
        self._event = EVENTS[format_]
        self._count = 0
        self._now = time.time_ns() // 1_000_000

    def batch(self, max_records: int) -> tuple[str, list[RawRecord]]:
        """Return a codec and up to `max_records` records, which are one batch."""
        return self._random.choice([*CODECS]), [
            self._record() for _ in range(self._random.randint(1, max(1, min(max_records, 12))))
        ]

    def _record(self) -> RawRecord:
        draw = self._random
        key = draw.choice([None, b"", b"k", b"k%d" % draw.randrange(9), draw.randbytes(draw.randrange(40))])
        if draw.random() < 0.01:
            key = draw.randbytes(1_000) * (LARGE // 1_000)
        headers = tuple(self._header() for _ in range(draw.choice([0, 0, 0, 1, 2, 6])))
        return RawRecord(key, self._value(), headers, self._timestamp())

    def _value(self) -> bytes | None:
        draw = self._random
        self._count += 1
        good = self._event({"id": f"e{self._count}", "a": float(self._count), "b": 0.0})
        kind = draw.random()
        if kind < 0.5:
            return good
        if kind < 0.8:
            return self._damaged(good)
        if kind < 0.81:  # zstd halves it, lz4 does not
            return b'{"id": "' + bytes(draw.choices(b"0123456789abcdef", k=LARGE + LARGE // 4))
        return draw.choice([None, b"", b"null", b"[]", b"{}", draw.randbytes(draw.randrange(200)), draw.choice(PIECES)])

    def _damaged(self, good: bytes) -> bytes:
        draw = self._random
        at = draw.randrange(len(good) + 1)
        end = min(len(good), at + draw.choice([0, 0, 1, 5, 20]))
        return good[:at] + draw.choice([b"", draw.randbytes(3), *PIECES]) + good[end:]

    def _header(self) -> tuple[bytes, bytes | None]:
        draw = self._random
        name = draw.choice([*NAMES, b"", b"plain", b"a\0b", "\u00e9".encode(), b"n" * 300])
        if draw.random() < 0.05:
            name = draw.choice([b"\xff\xfe", b"\xed\xa0\xbd", draw.randbytes(5)])
        return name, draw.choice([None, *TEXTS, draw.randbytes(20)])

    def _timestamp(self) -> int:
        draw = self._random
        if draw.random() < 0.7:
            return self._now
        return draw.choice([0, 1, -1, -5, 2**61, self._now + DAY_MS, self._now - 400 * DAY_MS, draw.randrange(2**45)])
