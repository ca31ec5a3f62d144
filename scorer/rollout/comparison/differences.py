"""What differs in the answers of two versions to the same events: folded batch by batch in bounded memory. Pure."""

import heapq
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from publisher.kafka.partitions import Partition
from scorer.rollout import drift
from scorer.rollout.comparison.answers import Answers

LARGEST = 20  # differences that are shown with their events
EXAMPLES = 5  # events of each reason that only the candidate dead-letters them for
SAMPLE = 200_000  # pairs of scores, at most, that distributions are compared on: their standard error is below 0.003
MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
"""The multipliers of splitmix64. Steele, Lea and Flood, Fast splittable pseudorandom number generators (2014)."""


class Event(NamedTuple):
    """One event, with its place."""

    partition: Partition
    offset: int
    value: bytes | None


class Difference(NamedTuple):
    """The answers of both versions to one event, as JSON, and how far they lie apart."""

    size: float
    event: Event
    champion: bytes
    candidate: bytes


@dataclass
class Differences:
    """Counts of events. `dead` are those that a version dead-letters, `newly` the reasons why the candidate does what the
    champion does not, `examples` the first of each. `flips` counts pairs of decisions; `changed` the scores that differ, of
    which `apart` in more than numbers (a text, a shape). `worst` are the largest differences."""

    events: int = 0
    both: int = 0
    dead: dict[str, int] = field(default_factory=lambda: {"champion": 0, "candidate": 0})
    newly: Counter[str] = field(default_factory=Counter)
    cured: int = 0
    examples: dict[str, list[tuple[Event, str]]] = field(default_factory=dict)
    flips: Counter[tuple[str | None, str | None]] = field(default_factory=Counter)
    changed: int = 0
    apart: int = 0
    total: float = 0.0
    worst: list[tuple[float, int, Difference]] = field(default_factory=list)
    _bound: int = (1 << 64) - 1
    _hashes: list[NDArray[np.uint64]] = field(default_factory=list)
    _pairs: list[NDArray[np.float64]] = field(default_factory=list)

    def add(
        self,
        partition: Partition,
        offsets: Sequence[int],
        values: Sequence[bytes | None],
        champion: Answers,
        candidate: Answers,
    ) -> None:
        """Take in the answers of both versions to some events of a partition."""
        both = champion.scored() & candidate.scored()
        self.events += len(offsets)
        self.both += int(both.sum())
        self.dead["champion"] += len(champion.rejected)
        self.dead["candidate"] += len(candidate.rejected)
        self.cured += len(champion.rejected.keys() - candidate.rejected.keys())
        for row in sorted(candidate.rejected.keys() - champion.rejected.keys()):
            poison = candidate.rejected[row]
            self.newly[poison.reason] += 1
            told = self.examples.setdefault(poison.reason, [])
            if len(told) < EXAMPLES:
                told.append((Event(partition, offsets[row], values[row]), str(poison)))
        rows = np.flatnonzero(both).tolist()
        self.flips.update((champion.decisions[row], candidate.decisions[row]) for row in rows)
        self._sample(partition, np.array(offsets, np.uint64), np.stack([champion.numbers, candidate.numbers]), both)
        for row, size in _sizes(rows, champion, candidate):
            self.changed += 1
            self.apart += size == math.inf
            self.total += size if size < math.inf else 0.0
            if len(self.worst) < LARGEST or size > self.worst[0][0]:
                event = Event(partition, offsets[row], values[row])
                self._keep(Difference(size, event, champion.scores[row], candidate.scores[row]))

    def _keep(self, difference: Difference) -> None:
        entry = (difference.size, -self.changed, difference)
        if len(self.worst) < LARGEST:
            heapq.heappush(self.worst, entry)
        else:
            heapq.heapreplace(self.worst, entry)

    def largest(self) -> list[Difference]:
        """The largest differences, the largest first."""
        return [difference for *_, difference in sorted(self.worst, reverse=True)]

    def flipped(self) -> int:
        """How many events are decided otherwise."""
        return sum(count for (before, after), count in self.flips.items() if before != after)

    def decided(self) -> bool:
        """Whether either version decides."""
        return any(name is not None for pair in self.flips for name in pair)

    def drift(self) -> tuple[float | None, float | None]:
        """PSI, without its bias, and KS of the scores; of the decisions, where scores are no single numbers, and KS None. None
        where there is neither."""
        pairs = np.concatenate(self._pairs, axis=1) if self._pairs else np.empty((2, 0))
        if pairs.shape[1]:
            return drift.psi_without_bias(*pairs), drift.ks(*pairs)
        if not self.decided():
            return None, None
        sides: tuple[Counter[str | None], Counter[str | None]] = Counter(), Counter()
        for pair, count in self.flips.items():
            for side, name in zip(sides, pair, strict=True):
                side[name] += count
        return drift.psi_of_names(*sides), None

    def _sample(
        self, partition: Partition, offsets: NDArray[np.uint64], pairs: NDArray[np.float64], both: NDArray[np.bool_]
    ) -> None:
        """Keep the pairs of numbers whose place hashes below a bound, which is halved when they become too many: the same
        events give the same sample."""
        hashes = _hashes(partition, offsets)
        chosen = both & np.isfinite(pairs).all(axis=0) & (hashes <= np.uint64(self._bound))
        self._hashes.append(hashes[chosen])
        self._pairs.append(pairs[:, chosen])
        while sum(map(len, self._hashes)) > SAMPLE:
            self._bound //= 2
            every, numbers = np.concatenate(self._hashes), np.concatenate(self._pairs, axis=1)
            below = every <= np.uint64(self._bound)
            self._hashes, self._pairs = [every[below]], [numbers[:, below]]


def _hashes(partition: Partition, offsets: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """splitmix64 of the places, whose numbers begin elsewhere in each partition."""
    seed = int.from_bytes(repr(partition).encode()[-8:], "big")
    mixed = (offsets + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
    for shift, factor in zip((30, 27), MIX, strict=True):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


def _sizes(rows: Sequence[int], champion: Answers, candidate: Answers) -> Iterator[tuple[int, float]]:
    """The rows, of those that both have scored, whose scores differ, and by how much."""
    apart = np.abs(candidate.numbers - champion.numbers)
    for row in rows:
        size = float(apart[row])
        if size > 0.0:
            yield row, size
        elif math.isnan(size) and champion.scores[row] != candidate.scores[row]:  # they are no single numbers
            yield row, _distance(orjson.loads(champion.scores[row]), orjson.loads(candidate.scores[row]))


def _distance(one: Any, other: Any) -> float:
    """The largest difference of two scores' numbers, place by place; infinity where they differ in more than numbers."""
    if isinstance(one, bool) or isinstance(other, bool) or isinstance(one, str) or one is None:
        return 0.0 if one == other else math.inf
    if isinstance(one, int | float) and isinstance(other, int | float):
        return abs(one - other)
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return max((_distance(value, other[name]) for name, value in one.items()), default=0.0)
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return max(map(_distance, one, other), default=0.0)
    return math.inf
