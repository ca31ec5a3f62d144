"""Store undecoded answers that wait for a partner, each under a number (its ticket), and decode them on request. Pure."""

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from scorer.native.byte_columns import Column, nulls, part, take_rows
from scorer.native.xxhash import xxh64
from scorer.rollout.canary_analysis import answer_records
from scorer.rollout.canary_analysis.answer_records import RawAnswer, UnreadableAnswer
from scorer.rollout.canary_analysis.paired_metrics import VersionAnswer

MAX_BYTES = 12 << 20  # of the values in all blocks together
ROW_BITS = 32
ROWS = (1 << ROW_BITS) - 1
MANY = 1_000
Tickets = NDArray[np.int64]
Read = TypeVar("Read")


class KeyedAnswer(NamedTuple):
    """An undecoded answer and the key of the event that it answers."""

    raw: RawAnswer
    key: bytes | None


class _Block(NamedTuple):
    values: Column
    keys: Column
    size: int


class PendingAnswers:
    """The undecoded answers that wait for a partner, the other version's answer to the same event.

    Each answer is stored under a number, its ticket.
    """

    # Answers that were stored together form a block, which is kept until none of its answers waits. If all blocks together
    # exceed MAX_BYTES, the oldest block is removed, and its answers that still wait are stored one by one.

    def __init__(self) -> None:
        self._blocks: dict[int, _Block] = {}
        self._single: dict[int, KeyedAnswer] = {}
        self._cleared = 0
        self._next = 0

    def add_block(self, values: Column, keys: Column, size: int) -> int:
        """Store answers together, and return the number (ticket) of the first one. The others have the numbers that follow.

        Args:
            values: The values, one per row.
            keys: The keys of the events, one per row.
            size: The size of all values in bytes.
        """
        ticket = self._ticket()
        self._blocks[ticket >> ROW_BITS] = _Block(values, keys, size)
        return ticket

    def add(self, answer: KeyedAnswer) -> int:
        """Store one answer, and return the number (ticket) by which it can be requested."""
        ticket = self._ticket()
        self._single[ticket] = answer
        return ticket

    def answers(self, tickets: Tickets) -> list[VersionAnswer]:
        """Decode the answers with these numbers (tickets), (n,).

        Raises:
            UnreadableAnswer: If a record is not a score. The attribute `row` of the error is an index into `tickets`.
        """
        return self._gathered(tickets, self._answers)

    def hashes(self, tickets: Tickets) -> list[int | None]:
        """Return the XXH64 of the event's key for each of these answers, (n,); None for an event without a key."""
        return self._gathered(tickets, self._hashes)

    def keep(self, tickets: Tickets) -> None:
        """Release all answers except those with these numbers (tickets), (n,)."""
        numbers = tickets >> ROW_BITS
        for number in self._blocks.keys() - set(np.unique(numbers).tolist()):
            del self._blocks[number]
        while sum(block.size for block in self._blocks.values()) > MAX_BYTES:
            oldest = min(self._blocks)
            self._single |= self._remove_block(oldest, tickets[numbers == oldest])
        if len(self._single) > 2 * self._cleared + MANY:
            self._single = {ticket: self._single[ticket] for ticket in tickets.tolist() if ticket in self._single}
            self._cleared = len(self._single)

    def _ticket(self) -> int:
        self._next += 1
        return self._next << ROW_BITS

    def _gathered(self, tickets: Tickets, read: Callable[[int, Tickets], list[Read]]) -> list[Read]:
        """Read the answers with these numbers (tickets) block by block, and return the results in the order of `tickets`.

        `read` is called with the number of a block and the tickets of the answers in the block.
        """
        numbers = tickets >> ROW_BITS
        blocks = np.unique(numbers).tolist()
        if len(blocks) == 1:
            return read(blocks[0], tickets)
        results: dict[int, Read] = {}
        for number in blocks:
            rows = np.flatnonzero(numbers == number)
            try:
                results |= zip(rows.tolist(), read(number, tickets[rows]), strict=True)
            except UnreadableAnswer as error:
                raise UnreadableAnswer(int(rows[error.row]), error) from error
        return [results[row] for row in range(len(tickets))]

    def _answers(self, number: int, tickets: Tickets) -> list[VersionAnswer]:
        if (block := self._blocks.get(number)) is None:
            return answer_records.answers([self._single[ticket].raw for ticket in tickets.tolist()])
        return answer_records.answers_at(block.values, tickets & ROWS)

    def _hashes(self, number: int, tickets: Tickets) -> list[int | None]:
        block = self._blocks.get(number)
        keys = [self._single[each].key for each in tickets.tolist()] if block is None else part(block.keys, tickets & ROWS)
        hashes: list[int | None] = [*xxh64(keys, 0).tolist()]
        for row in nulls(keys):
            hashes[row] = None
        return hashes

    def _remove_block(self, number: int, tickets: Tickets) -> Iterator[tuple[int, KeyedAnswer]]:
        """Remove a block, and return its answers that still wait, as pairs of ticket and answer.

        Args:
            number: The number of the block.
            tickets: The tickets of the answers that still wait, (n,). The other answers of the block are discarded.
        """
        values, keys, _ = self._blocks.pop(number)
        rows = tickets & ROWS
        answers = map(KeyedAnswer, (value or b"null" for value in take_rows(values, rows)), take_rows(keys, rows))
        return zip(tickets.tolist(), answers, strict=True)
