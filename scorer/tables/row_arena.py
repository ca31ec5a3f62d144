"""The raw bytes of a table's rows: an append-only store of segments that frees the memory of replaced rows.

This module depends on `scorer.native` only. One thread appends and compacts. Other threads may read, under
a lock of the caller.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scorer.native.byte_columns import PADDING, ByteColumn

SEGMENT_BYTES = 4 << 20
WASTE_BYTES = 2 * SEGMENT_BYTES
"""Compaction begins if replaced rows take more than WASTE_BYTES and more than a third of the memory."""
Values = Sequence[bytes | None]
Lengths = NDArray[np.signedinteger[Any]]


class RowArena:
    """Byte strings at fixed positions. A position is the number of bytes that were appended before the string.

    Attributes:
        nbytes: the memory of the segments in bytes.
        live: the total size of the strings in use, in bytes: all appended strings, minus the sizes passed to `release`.
    """

    def __init__(self, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._segment_bytes = segment_bytes
        self._segments: dict[int, NDArray[np.uint8]] = {}  # by the position of the first byte
        self._starts = np.empty(0, np.int64)  # the keys of `_segments`, ascending
        self._end = 0  # the position of the next byte
        self._room = 0  # bytes that are left in the last segment
        self.nbytes = 0
        self.live = 0

    def append(self, values: Values) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Store byte strings; None is stored as an empty string.

        Returns:
            The position and the length of each string, both (n,).
        """
        if isinstance(values, ByteColumn):
            lengths = values.lengths()
            if values.nulls is not None:
                lengths = np.where(values.nulls.astype(bool), 0, lengths)
            data = _joined(values, lengths)
        else:
            lengths = np.fromiter((len(value or b"") for value in values), np.int64, len(values))
            data = np.frombuffer(b"".join(value or b"" for value in values), np.uint8)
        ends = np.cumsum(lengths)
        begins = ends - lengths
        positions = np.empty(len(lengths), np.int64)
        row = 0
        while row < len(lengths):
            if lengths[row] > self._room:
                self._open_segment(int(lengths[row]))
            stop = int(np.searchsorted(ends, begins[row] + self._room, side="right"))  # the rows that fit into the segment
            positions[row:stop] = self._end + begins[row:stop] - begins[row]
            self._write(data[begins[row] : ends[stop - 1]])
            row = stop
        self.live += len(data)
        return positions, lengths

    def columns(self, positions: NDArray[np.int64], lengths: Lengths) -> list[tuple[NDArray[np.intp], ByteColumn]]:
        """Return the strings at these positions without a copy. All strings of one segment are in one column.

        Returns:
            Pairs of the indices in `positions` and the column of the strings at these positions. PADDING follows the text of
            each column. A column is valid as long as the caller does not append or free segments.
        """
        segments = np.maximum(np.searchsorted(self._starts, positions, side="right") - 1, 0)
        columns = []
        for segment in np.unique(segments).tolist() if len(self._starts) else ():
            at = np.flatnonzero(segments == segment)
            start = int(self._starts[segment])
            begins = np.where(lengths[at] > 0, positions[at] - start, 0)  # the segment of an empty string may be freed
            columns.append((at, ByteColumn(self._segments[start], begins, begins + lengths[at])))
        return columns

    def read(self, positions: NDArray[np.int64], lengths: Lengths) -> list[bytes]:
        """Return copies of the strings at these positions."""
        values = [b""] * len(positions)
        for at, column in self.columns(positions, lengths):
            for index, value in zip(at.tolist(), column.take_rows(np.arange(len(at))), strict=True):
                values[index] = value or b""
        return values

    def release(self, size: int) -> None:
        """Record that strings of `size` bytes in total are no longer in use."""
        self.live -= size

    @property
    def wastes(self) -> bool:
        """Whether replaced strings take so much memory that the caller must call `compact`."""
        waste = self.nbytes - self.live
        return waste > WASTE_BYTES and waste * 3 > self.nbytes

    def sparse_segments(self, positions: NDArray[np.int64], lengths: Lengths) -> list[int]:
        """Return the segments of which less than two thirds are in use. The segment that is being filled is never returned.

        Args:
            positions: the positions of the strings that are in use and not empty.
            lengths: the lengths of these strings.
        """
        segment = np.searchsorted(self._starts, positions, side="right") - 1
        used = np.bincount(segment, lengths, minlength=len(self._starts)).tolist()
        filled = self._starts.tolist()[:-1]
        return [start for start, size in zip(filled, used, strict=False) if size * 3 < self._size(start) * 2]

    def in_segments(self, positions: NDArray[np.int64], segments: Sequence[int]) -> NDArray[np.bool_]:
        """Return, for each position, whether it lies in one of the segments."""
        return np.isin(self._starts[np.searchsorted(self._starts, positions, side="right") - 1], segments)

    def free(self, segments: Sequence[int]) -> None:
        """Free the memory of segments. Their strings must no longer be in use."""
        for start in segments:
            self.nbytes -= self._size(start)
            del self._segments[start]
        self._starts = np.array(sorted(self._segments), np.int64)

    def _size(self, segment: int) -> int:
        return len(self._segments[segment]) - len(PADDING)

    def _open_segment(self, least: int) -> None:
        self._end += self._room  # the rest of the last segment stays empty
        size = max(self._segment_bytes, least)
        self._segments[self._end] = np.zeros(size + len(PADDING), np.uint8)
        self._starts = np.append(self._starts, self._end)
        self._room = size
        self.nbytes += size

    def _write(self, data: NDArray[np.uint8]) -> None:
        if not len(data):
            return
        start = int(self._starts[-1])
        self._segments[start][self._end - start : self._end - start + len(data)] = data
        self._end += len(data)
        self._room -= len(data)


def _joined(values: ByteColumn, lengths: Lengths) -> NDArray[np.uint8]:
    """Return the bytes of all strings without gaps; a view if the strings are stored without gaps."""
    total = int(lengths.sum())
    if not total:
        return np.empty(0, np.uint8)
    present = lengths > 0
    starts = values.starts[present]
    ends = starts + lengths[present]
    if (starts[1:] == ends[:-1]).all():
        return values.text[starts[0] : ends[-1]]
    until = np.cumsum(lengths)
    text: NDArray[np.uint8] = values.text[np.arange(total) + np.repeat(values.starts - (until - lengths), lengths)]
    return text
