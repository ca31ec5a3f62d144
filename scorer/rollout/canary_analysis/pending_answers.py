"""Answers that wait for another, as they were taken: a ticket finds each. Only those that are asked for are made. Pure."""

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from scorer.native.byte_columns import Column, nulls, part, some
from scorer.native.xxhash import xxh64
from scorer.rollout.canary_analysis import answer_records
from scorer.rollout.canary_analysis.answer_records import RawAnswer, UnreadableAnswer
from scorer.rollout.canary_analysis.paired_metrics import VersionAnswer

MOST_BYTES = 12 << 20  # of what was taken together and is kept whole
ROW_BITS = 32
ROWS = (1 << ROW_BITS) - 1
MANY = 1_000
Tickets = NDArray[np.int64]
Read = TypeVar("Read")


class KeyedAnswer(NamedTuple):
    """An answer, and the key of its event."""

    said: RawAnswer
    key: bytes | None


class _Block(NamedTuple):
    values: Column
    keys: Column
    size: int


class PendingAnswers:
    """What was taken together is kept whole while any of it waits; of the oldest only what waits is kept, where that is too
    much."""

    def __init__(self) -> None:
        self._blocks: dict[int, _Block] = {}
        self._single: dict[int, KeyedAnswer] = {}
        self._cleared = self._next = 0

    def put(self, values: Column, keys: Column, size: int) -> int:
        """The ticket of the first row; those of the others follow. `size`: the bytes of all values."""
        ticket = self._ticket()
        self._blocks[ticket >> ROW_BITS] = _Block(values, keys, size)
        return ticket

    def put_one(self, told: KeyedAnswer) -> int:
        """The ticket of an answer."""
        ticket = self._ticket()
        self._single[ticket] = told
        return ticket

    def answers(self, tickets: Tickets) -> list[VersionAnswer]:
        """The answers with these tickets, (n,), in full. Raises Unreadable, whose row is one of those n."""
        return self._gathered(tickets, self._answers)

    def hashes(self, tickets: Tickets) -> list[int | None]:
        """Of each ticket, (n,), the XXH64 of its event's key; None where there is no key."""
        return self._gathered(tickets, self._hashes)

    def keep(self, tickets: Tickets) -> None:
        """Only these wait, (n,)."""
        numbers = tickets >> ROW_BITS
        for number in self._blocks.keys() - set(np.unique(numbers).tolist()):
            del self._blocks[number]
        while sum(block.size for block in self._blocks.values()) > MOST_BYTES:
            oldest = min(self._blocks)
            self._single |= self._taken_out(oldest, tickets[numbers == oldest])
        if len(self._single) > 2 * self._cleared + MANY:
            self._single = {ticket: self._single[ticket] for ticket in tickets.tolist() if ticket in self._single}
            self._cleared = len(self._single)

    def _ticket(self) -> int:
        self._next += 1
        return self._next << ROW_BITS

    def _gathered(self, tickets: Tickets, read: Callable[[int, Tickets], list[Read]]) -> list[Read]:
        """Reads block by block. Most often there is but one."""
        numbers = tickets >> ROW_BITS
        blocks = np.unique(numbers).tolist()
        if len(blocks) == 1:
            return read(blocks[0], tickets)
        found: dict[int, Read] = {}
        for number in blocks:
            rows = np.flatnonzero(numbers == number)
            try:
                found |= zip(rows.tolist(), read(number, tickets[rows]), strict=True)
            except UnreadableAnswer as error:
                raise UnreadableAnswer(int(rows[error.row]), error) from error
        return [found[row] for row in range(len(tickets))]

    def _answers(self, number: int, tickets: Tickets) -> list[VersionAnswer]:
        if (block := self._blocks.get(number)) is None:
            return answer_records.answers([self._single[ticket].said for ticket in tickets.tolist()])
        return answer_records.answers_at(block.values, tickets & ROWS)

    def _hashes(self, number: int, tickets: Tickets) -> list[int | None]:
        block = self._blocks.get(number)
        keys = [self._single[each].key for each in tickets.tolist()] if block is None else part(block.keys, tickets & ROWS)
        hashes: list[int | None] = [*xxh64(keys, 0).tolist()]
        for row in nulls(keys):
            hashes[row] = None
        return hashes

    def _taken_out(self, number: int, tickets: Tickets) -> Iterator[tuple[int, KeyedAnswer]]:
        """A block's rows, as single answers."""
        values, keys, _ = self._blocks.pop(number)
        rows = tickets & ROWS
        told = map(KeyedAnswer, (value or b"null" for value in some(values, rows)), some(keys, rows))
        return zip(tickets.tolist(), told, strict=True)
