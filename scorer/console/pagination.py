"""One page of a long list. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

ROWS = 50
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """One page of the rows that match a filter.

    Attributes:
        rows: The rows of this page.
        number: The number of this page, from 1.
        pages: The number of pages.
        total: The number of rows that match.
        everything: The number of all rows, matching or not.
    """

    rows: Sequence[Row]
    number: int
    pages: int
    total: int
    everything: int


def page(rows: Sequence[Row], number: str | None, matches: Callable[[Row], bool] = lambda _: True) -> Page[Row]:
    """Return one page of the rows for which `matches` returns True.

    Args:
        rows: All rows.
        number: The requested page number as text. If it is invalid or missing, page 1 is returned. If it is too large, the last
            page is returned.
        matches: Returns whether a row matches the filter.
    """
    selected = [row for row in rows if matches(row)]
    pages = max(1, -(-len(selected) // ROWS))
    wanted = int(number) if number and number.isascii() and number.isdigit() and len(number) < 9 else 1
    current = min(max(1, wanted), pages)
    return Page(selected[(current - 1) * ROWS : current * ROWS], current, pages, len(selected), len(rows))
