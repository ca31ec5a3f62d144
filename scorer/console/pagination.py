"""One page of a long list. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

ROWS = 50
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """`rows` of page `number` (from 1) of `pages`; `total` rows match, of `everything`."""

    rows: Sequence[Row]
    number: int
    pages: int
    total: int
    everything: int


def page(rows: Sequence[Row], number: str | None, matches: Callable[[Row], bool] = lambda _: True) -> Page[Row]:
    """The page that a query's `number` asks for; the nearest one where there is no such page."""
    found = [row for row in rows if matches(row)]
    pages = max(1, -(-len(found) // ROWS))
    wanted = int(number) if number and number.isascii() and number.isdigit() and len(number) < 9 else 1
    at = min(max(1, wanted), pages)
    return Page(found[(at - 1) * ROWS : at * ROWS], at, pages, len(found), len(rows))
