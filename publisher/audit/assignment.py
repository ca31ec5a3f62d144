"""Check that each event was answered by the arm of its key. Pure: keys, arms and traffic splits in, faults out.

The split is recomputed from the topics alone, without the registry: a swap record states from which offset on which share of
the keys is the canary's, and the seed of the hash. `bucket = xxh64(key, seed) mod 10,000`; p percent own the buckets below 100
p. An event without a key is hashed by its position, `topic/partition/offset`.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from xxhash import xxh64

from publisher.kafka.partitions import Partition

BUCKETS_A_PERCENT = 100
ALL_BUCKETS = 10_000
CHAMPION = "champion"
CANARY = "canary"


class Shares(NamedTuple):
    """From `offset` on, under `revision`, the canary has this percentage of the keys, hashed with `seed`."""

    offset: int
    revision: int
    percent: int = 0
    seed: int = 0


class Answered(NamedTuple):
    """The arm and role in the score of one event, and the event's key."""

    offset: int
    key: bytes | None
    arm: str
    role: str


class Assignment:
    """The cut-overs of one input partition."""

    def __init__(self, source: Partition) -> None:
        self._source = source
        self._shares: list[Shares] = []

    def add(self, shares: Shares) -> None:
        """Add a cut-over; several records may describe the same one."""
        self._shares = sorted({*self._shares, shares})

    def misassigned(self, answers: Iterable[Answered]) -> list[int]:
        """Return the offsets answered by another arm than the key's, or by neither their arm nor the champion."""
        starts = [shares.offset for shares in self._shares]
        return [answer.offset for answer in answers if not self._right(answer, starts)]

    def _right(self, answer: Answered, starts: Sequence[int]) -> bool:
        at = bisect_right(starts, answer.offset) - 1
        arm = CHAMPION if at < 0 else self._arm(self._shares[at], answer)
        return answer.arm == arm and answer.role in (arm, CHAMPION)

    def _arm(self, shares: Shares, answer: Answered) -> str:
        if not shares.percent:
            return CHAMPION
        topic, partition = self._source
        key = f"{topic}/{partition}/{answer.offset}".encode() if answer.key is None else answer.key
        bucket = xxh64(key, seed=shares.seed).intdigest() % ALL_BUCKETS
        return CANARY if bucket < shares.percent * BUCKETS_A_PERCENT else CHAMPION
