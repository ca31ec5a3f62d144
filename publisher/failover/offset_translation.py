"""Translate positions between a partition and its copy. Pure.

The copy of a partition is in a partition of its own, in order, and every record states its origin in `x-origin`. A position is
therefore found by
bisection with about twenty reads of one record, and nothing has to be stored for it while copying.
"""

from collections.abc import Callable
from typing import NamedTuple

LOOK_BACK = 16  # offsets, at first: what is read before a position, to find the last record there


class Seen(NamedTuple):
    """A copy: its own offset, and its origin's offset in the source partition."""

    offset: int
    origin: int


Read = Callable[[int], Seen | None]
"""The first copy at or behind this offset; None if none is visible."""


def in_copy(read: Read, low: int, high: int, position: int) -> int:
    """Return the first offset of the copy, in [low, high], from which on all origins are at or behind `position`.

    With `position` committed at the source, everything before the result has been consumed.
    """
    while low < high:
        middle = (low + high) // 2
        found = read(middle)
        if found is None or found.offset >= high or found.origin >= position:
            high = middle
        else:
            low = found.offset + 1
    return low


def in_source(read: Read, low: int, position: int) -> int | None:
    """Return the source offset before which everything is before `position` of the copy, which starts at `low`.

    None if nothing is.
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


def _last_before(read: Read, begin: int, end: int) -> Seen | None:
    last = None
    while begin < end:
        found = read(begin)
        if found is None or found.offset >= end:
            break
        last, begin = found, found.offset + 1
    return last
