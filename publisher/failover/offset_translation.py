"""Where in the copy of a partition does a position of its source lie? And the other way round. Pure.

A copy of one partition lies in a partition of its own, in order, and every record says in `x-origin` where it comes from.
So a position is found by halving, with about twenty reads of one record, and nothing has to be kept for it while copying.
"""

from collections.abc import Callable
from typing import NamedTuple

LOOK_BACK = 16  # offsets, at first: what is read before a position, to find the last record there


class Seen(NamedTuple):
    """A copy: its own offset, and the offset that its origin has in the source partition."""

    offset: int
    origin: int


Read = Callable[[int], Seen | None]
"""The first copy at this offset or behind it; None where none is visible."""


def in_copy(read: Read, low: int, high: int, position: int) -> int:
    """The first offset of the copy, in [low, high], whose record and all that follow have origins at `position` or behind it:
    with `position` committed at the source, everything before the answer has been taken."""
    while low < high:
        middle = (low + high) // 2
        found = read(middle)
        if found is None or found.offset >= high or found.origin >= position:
            high = middle
        else:
            low = found.offset + 1
    return low


def in_source(read: Read, low: int, position: int) -> int | None:
    """The source offset up to which all lies before `position` of the copy, which begins at `low`; None where nothing does."""
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
