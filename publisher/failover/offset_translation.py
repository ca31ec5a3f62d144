"""Translate offsets between a source partition and its copy. Pure.

The copies have other offsets, but the same order, and their header `x-origin` contains the source offset. A bisection therefore
translates an offset with about twenty reads of one record each.
"""

from collections.abc import Callable
from typing import NamedTuple

FIRST_SEARCH_OFFSETS = (
    16  # offsets before a position that the first backward search covers; each further search covers twice as many
)


class CopiedRecord(NamedTuple):
    """A copied record: its `offset` in the copy, and `origin`, its offset in the source partition."""

    offset: int
    origin: int


ReadCopy = Callable[[int], CopiedRecord | None]
"""Returns the first copied record at or after the given offset of the copy; None if no committed record follows."""


def in_copy(read: ReadCopy, low: int, high: int, position: int) -> int:
    """Translate an offset of the source to an offset of the copy, where a consumer group can continue without a loss.

    Args:
        read: reads a record of the copy.
        low: the first offset of the copy.
        high: the end offset of the copy.
        position: the offset that the group has committed at the source.

    Returns:
        The offset of the copy that separates earlier records (source offset < `position`) from later ones (>= `position`).
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
    """Translate an offset of the copy to an offset of the source.

    Args:
        read: reads a record of the copy.
        low: the first offset of the copy.
        position: the offset of the copy.

    Returns:
        The source offset of the first record at or after `position`. If there is no such record, the offset after the source
        offset of the last record. None if the copy has no committed record.
    """
    following = read(position)
    if following is not None:
        return following.origin
    back = FIRST_SEARCH_OFFSETS
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
