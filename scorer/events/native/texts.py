"""Many byte strings in one buffer: what C reads and writes at once, and Python takes apart only where somebody asks."""

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray


class Texts(Sequence[bytes | None]):
    """The strings `text[starts[i]:ends[i]]`. `text` is uint8; `starts` and `ends` are int64 and ascend; `nulls`, where it is
    given, is true for those that are None."""

    def __init__(
        self,
        text: NDArray[np.uint8],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        nulls: NDArray[Any] | None = None,
    ) -> None:
        self.text = text
        self.starts = starts
        self.ends = ends
        self.nulls = nulls if nulls is not None and nulls.any() else None
        self._listed: list[bytes | None] | None = None

    @classmethod
    def split(cls, text: bytes, before: int, ends: NDArray[np.int64], between: int = 1) -> "Texts":
        """The parts of a text that end at `ends`. The first begins `before` bytes after the start; `between` bytes lie between
        two of them."""
        starts = np.empty_like(ends)
        starts[:1] = before
        starts[1:] = ends[:-1] + between
        return cls(np.frombuffer(text, np.uint8), starts, ends)

    def listed(self) -> list[bytes | None]:
        """Each string by itself."""
        if self._listed is None:
            text = self.text.tobytes()
            found: list[bytes | None] = [text[a:b] for a, b in zip(self.starts.tolist(), self.ends.tolist(), strict=True)]
            for row in [] if self.nulls is None else np.flatnonzero(self.nulls).tolist():
                found[row] = None
            self._listed = found
        return self._listed

    def lengths(self) -> NDArray[np.int64]:
        """How many bytes each has; 0 for None."""
        return self.ends - self.starts

    def largest(self) -> int:
        """How many bytes the largest has."""
        return int(self.lengths().max(initial=0))

    def __len__(self) -> int:
        return len(self.ends)

    def __iter__(self) -> Iterator[bytes | None]:
        return iter(self.listed())

    @overload
    def __getitem__(self, at: int) -> bytes | None: ...
    @overload
    def __getitem__(self, at: slice) -> list[bytes | None]: ...
    def __getitem__(self, at: int | slice) -> bytes | list[bytes | None] | None:
        return self.listed()[at]


def address(owner: NDArray[Any]) -> int:
    """Where an array's memory begins. The caller keeps the array for as long as somebody reads there."""
    at: int = owner.__array_interface__["data"][0]
    return at
