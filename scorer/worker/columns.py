"""Entries of a batch's columns by their rows, which ascend."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def pick(column: Sequence[T], rows: list[int]) -> Sequence[T]:
    """The entries of these rows: the column itself where they are all."""
    return column if len(rows) == len(column) else [column[row] for row in rows]


def placed(column: Sequence[T], rows: Sequence[int], values: Sequence[T]) -> list[T]:
    """A column with values at these rows."""
    if len(rows) == len(column):
        return list(values)
    found = list(column)
    for row, value in zip(rows, values, strict=True):
        found[row] = value
    return found
