"""Translate positions between a partition and its copy. Pure.

The copy of a partition is a partition of its own, in the same order, and every record states its origin in `x-origin`. A
bisection therefore finds a position with about twenty reads of one record, and nothing is stored for it while copying.
"""

from collections.abc import Callable
from typing import NamedTuple

LOOK_BACK = 16  # offsets that the first search before a position covers


class CopiedRecord(NamedTuple):
    """A copied record: its offset in the copy, and the offset of its origin in the source partition."""

    offset: int
    origin: int


ReadCopy = Callable[[int], CopiedRecord | None]
"""Returns the first copy at or after this offset; None if none is visible."""


def in_copy(read: ReadCopy, low: int, high: int, position: int) -> int:
    """Return the first offset of the copy, in [low, high], from which on all origins are at or after `position`.

    If `position` is committed at the source, every record before the result has been consumed.
    """
    while low < high:
        middle = (low + high) // 2
        record = read(middle)
        if record is None or record.offset >= high or record.origin >= position:
            high = middle
        else:
            low = record.offset + 1
    return low


def in_source(read: ReadCopy, low: int, position: int) -> int | None:
    """Return the source offset up to which all copies are before `position` of the copy, which starts at `low`.

    None if the copy has no visible record.
    """
    following = read(position)
    if following is not None:
        return following.origin
    back = LOOK_BACK
    while position > low:
        begin = max(low, position - back)
        last = _last_before(read, begin, position)
        if last is not None:
            return last.origin + 1
        if begin == low:
            break
        back *= 2
    return None


def _last_before(read: ReadCopy, begin: int, end: int) -> CopiedRecord | None:
    last = None
    while begin < end:
        record = read(begin)
        if record is None or record.offset >= end:
            break
        last = record
        begin = record.offset + 1
    return last
