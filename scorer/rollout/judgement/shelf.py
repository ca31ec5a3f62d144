"""Answers that wait for another, as they were taken: a ticket finds each. Only those that are asked for are made. Pure."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scorer.events.native.texts import Column, some
from scorer.rollout.judgement.records import Said

MOST_BYTES = 32 << 20  # of what was taken together and is kept whole
ROW_BITS = 32
MANY = 1_000
Tickets = NDArray[np.int64]
Told = tuple[Said, bytes | None]
"""An answer, and the key of its event."""


class _Block(NamedTuple):
    values: Column
    keys: Column
    size: int


class Shelf:
    """What was taken together is kept whole while any of it waits; of the oldest only what waits is kept, where that is too
    much."""

    def __init__(self) -> None:
        self._blocks: dict[int, _Block] = {}
        self._single: dict[int, Told] = {}
        self._cleared = self._next = 0

    def put(self, values: Column, keys: Column, size: int) -> int:
        """The ticket of the first row; those of the others follow. `size`: the bytes of all values."""
        ticket = self._ticket()
        self._blocks[ticket >> ROW_BITS] = _Block(values, keys, size)
        return ticket

    def put_one(self, told: Told) -> int:
        """The ticket of an answer."""
        ticket = self._ticket()
        self._single[ticket] = told
        return ticket

    def told(self, tickets: Tickets) -> list[Told]:
        """The answers with these tickets, (n,)."""
        numbers = tickets >> ROW_BITS
        found: dict[int, Told] = {}
        for number in np.unique(numbers).tolist():
            mine = tickets[numbers == number]
            found |= zip(mine.tolist(), self._of(number, mine), strict=True)
        return [found[ticket] for ticket in tickets.tolist()]

    def keep(self, tickets: Tickets) -> None:
        """Only these wait, (n,)."""
        numbers = tickets >> ROW_BITS
        for number in self._blocks.keys() - set(np.unique(numbers).tolist()):
            del self._blocks[number]
        while sum(block.size for block in self._blocks.values()) > MOST_BYTES:
            oldest = min(self._blocks)
            rest = tickets[numbers == oldest]
            self._single |= zip(rest.tolist(), self._of(oldest, rest), strict=True)
            del self._blocks[oldest]
        if len(self._single) > 2 * self._cleared + MANY:
            self._single = {ticket: self._single[ticket] for ticket in tickets.tolist() if ticket in self._single}
            self._cleared = len(self._single)

    def _ticket(self) -> int:
        self._next += 1
        return self._next << ROW_BITS

    def _of(self, number: int, tickets: Tickets) -> list[Told]:
        if (block := self._blocks.get(number)) is None:
            return [self._single[ticket] for ticket in tickets.tolist()]
        rows = tickets & ((1 << ROW_BITS) - 1)
        values = (value or b"null" for value in some(block.values, rows))
        return list(zip(values, some(block.keys, rows), strict=True))
