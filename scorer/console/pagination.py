"""One page of a long list. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

ROWS = 50
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """One page of the matching rows.

    Attributes:
        rows: The rows of the page.
        number: The number of the page, from 1.
        pages: The number of pages.
        total: The number of matching rows.
        everything: The number of all rows.
    """

    rows: Sequence[Row]
    number: int
    pages: int
    total: int
    everything: int


def page(rows: Sequence[Row], number: str | None, matches: Callable[[Row], bool] = lambda _: True) -> Page[Row]:
    """Return the requested page of the matching rows, or the nearest page."""
    selected = [row for row in rows if matches(row)]
    pages = max(1, -(-len(selected) // ROWS))
    wanted = int(number) if number and number.isascii() and number.isdigit() and len(number) < 9 else 1
    current = min(max(1, wanted), pages)
    return Page(selected[(current - 1) * ROWS : current * ROWS], current, pages, len(selected), len(rows))
