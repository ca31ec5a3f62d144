"""The differences between the answers of two versions to the same events, folded batch by batch in bounded memory. Pure."""

import heapq
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import orjson

from publisher.kafka.partitions import Partition
from scorer.evaluation import drift
from scorer.evaluation.score_events import Answers
from scorer.evaluation.score_pair_sample import PairSample

LARGEST = 20  # differences that are shown with their events
EXAMPLES = 5  # events of each reason that only the candidate dead-letters them for
SAMPLE = 200_000  # pairs of scores, at most, that distributions are compared on: their standard error is below 0.003


class Event(NamedTuple):
    """One event with its position."""

    partition: Partition
    offset: int
    value: bytes | None


class Difference(NamedTuple):
    """The answers of both versions to one event, as JSON, and their distance."""

    size: float
    event: Event
    champion: bytes
    candidate: bytes


@dataclass
class Differences:
    """Counts of events.

    `dead` counts those that a version dead-letters, `newly` the reasons of the candidate alone, with the first `examples` of
    each. `flips`
    counts pairs of decisions; `changed` the scores that differ, of which `apart` in more than numbers (a text, a shape).
    `worst` are the
    largest differences.
    """

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
    _pairs: PairSample = field(default_factory=lambda: PairSample(SAMPLE))

    def add(
        self,
        partition: Partition,
        offsets: Sequence[int],
        values: Sequence[bytes | None],
        champion: Answers,
        candidate: Answers,
    ) -> None:
        """Add the answers of both versions to events of a partition."""
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
        numbers = np.stack([champion.numbers, candidate.numbers])
        self._pairs.add(partition, [offsets[row] for row in rows], numbers[:, rows])
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
        """The largest differences in descending order."""
        return [difference for *_, difference in sorted(self.worst, reverse=True)]

    def flipped(self) -> int:
        """The number of events with different decisions."""
        return sum(count for (before, after), count in self.flips.items() if before != after)

    def decided(self) -> bool:
        """Whether either version decides."""
        return any(name is not None for pair in self.flips for name in pair)

    def drift(self) -> tuple[float | None, float | None]:
        """PSI without its bias and KS of the scores; of decisions (KS None) without single-number scores; else None."""
        pairs = self._pairs.pairs()
        if pairs.shape[1]:
            return drift.psi_without_bias(*pairs), drift.ks(*pairs)
        if not self.decided():
            return None, None
        sides: tuple[Counter[str | None], Counter[str | None]] = Counter(), Counter()
        for pair, count in self.flips.items():
            for side, name in zip(sides, pair, strict=True):
                side[name] += count
        return drift.psi_of_names(*sides), None


def _sizes(rows: Sequence[int], champion: Answers, candidate: Answers) -> Iterator[tuple[int, float]]:
    """Yield the rows that both have scored differently, and the distance."""
    apart = np.abs(candidate.numbers - champion.numbers)
    if champion.several or candidate.several:  # other outputs may differ where the one that decides does not
        apart = np.full(len(apart), np.nan)
    for row in rows:
        size = float(apart[row])
        if size > 0.0:
            yield row, size
        elif math.isnan(size) and champion.scores[row] != candidate.scores[row]:  # they are no single numbers
            yield row, _distance(orjson.loads(champion.scores[row]), orjson.loads(candidate.scores[row]))


def _distance(one: Any, other: Any) -> float:
    """Return the largest difference of two scores' numbers; infinity if they differ in more than numbers."""
    if isinstance(one, bool) or isinstance(other, bool) or isinstance(one, str) or one is None:
        return 0.0 if one == other else math.inf
    if isinstance(one, int | float) and isinstance(other, int | float):
        return abs(one - other)
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return max((_distance(value, other[name]) for name, value in one.items()), default=0.0)
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return max(map(_distance, one, other), default=0.0)
    return math.inf
