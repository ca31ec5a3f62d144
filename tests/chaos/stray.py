"""Decide when a held EndTxn is delivered late. Pure: its input is the sequence of requests that pass.

A client whose connection breaks in a commit repeats its EndTxn. If the first one was only late, it can reach the broker while
the same producer's next transaction is open, and commit half of it. This module produces that order: the first EndTxn is held,
its connection is cut, and the repetition passes. Once a later transaction of the same id has written records and sends its
offsets, the held request is sent first (offsets that overtake the records pass: the held request would have no effect).
Request layouts: Kafka protocol guide, request header v1 and v2; the transactional id is the first field of EndTxn. A producer
that sends no offsets has written records when its second request with some arrives: `before` is the request before which the
stray one is sent.
"""

import struct
from dataclasses import dataclass, field
from enum import Enum

PRODUCE = 0
ADD_PARTITIONS = 24
END_TXN = 26
TXN_OFFSET_COMMIT = 28
FLEXIBLE_END_TXN = 3  # from this version on: compact strings and tagged fields


class Action(Enum):
    PASS = "let it pass"
    HOLD = "keep it and cut the connection"
    STRAY_FIRST = "let the held one go first"


def api(frame: bytes) -> tuple[int, int]:
    """Key and version of a request without its length."""
    key, version = struct.unpack_from(">hh", frame)
    return key, version


def transactional_id(frame: bytes) -> bytes:
    _, version = api(frame)
    (client_length,) = struct.unpack_from(">h", frame, 8)
    at = 10 + max(client_length, 0)
    if version >= FLEXIBLE_END_TXN:
        length = frame[at + 1] - 1  # after an empty list of tags; ids here are shorter than 127 bytes
        return frame[at + 2 : at + 2 + length]
    (length,) = struct.unpack_from(">h", frame, at)
    return frame[at + 2 : at + 2 + length]


@dataclass
class StrayEndTxn:
    """One order at a time. `wanted` is set by `order`; `loosed` counts the requests that were delivered late."""

    before: int = TXN_OFFSET_COMMIT
    wanted: bool = False
    held: bytes | None = None
    loosed: int = 0
    _id: bytes = field(default=b"", repr=False)
    _repeated: bool = False
    _next_open: bool = False
    _written: bool = False

    def order(self) -> None:
        """Hold the next EndTxn, unless one is held already."""
        self.wanted = self.held is None

    def request(self, frame: bytes) -> Action:
        """Return the action for this request (without its length)."""
        key, _ = api(frame)
        if self.held is None:
            if key == END_TXN and self.wanted:
                self.wanted, self.held, self._id = False, frame, transactional_id(frame)
                return Action.HOLD
            return Action.PASS
        if self._id not in frame:
            return Action.PASS
        if key == self.before and self._written:
            return Action.STRAY_FIRST
        if key == END_TXN:
            self._repeated, self._next_open, self._written = True, False, False
        elif key == ADD_PARTITIONS:
            self._next_open = self._repeated
        elif key == PRODUCE:
            self._written = self._next_open
        elif key == TXN_OFFSET_COMMIT:
            self._next_open = False
        return Action.PASS

    def let_go(self) -> bytes:
        frame, self.held = self.held, None
        self._repeated = self._next_open = self._written = False
        self.loosed += 1
        assert frame is not None
        return frame
