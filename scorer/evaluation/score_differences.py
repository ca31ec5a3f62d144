"""Collect the differences between the answers of two model versions to the same events, in bounded memory. Pure."""

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
from scorer.evaluation.score_events import EventAnswers
from scorer.evaluation.score_pair_sample import PairSample

LARGEST = 20  # the number of largest differences that are kept with their events
EXAMPLES = 5  # events that are kept for each reason of dead letters that only the candidate writes
SAMPLE = 200_000  # pairs of scores whose distributions are compared, with a standard error below 0.003


class Event(NamedTuple):
    """The value of one event, and the position of the event in Kafka."""

    partition: Partition
    offset: int
    value: bytes | None


class ScoreDifference(NamedTuple):
    """The scores of both versions for one event, as JSON, and the distance `size` between the scores."""

    size: float
    event: Event
    champion: bytes
    candidate: bytes


@dataclass
class Differences:
    """The differences between the answers of champion and candidate to the same events: counts, and the largest ones.

    Attributes:
        events: The number of events.
        both: The number of events that both versions scored.
        dead: The number of events that each version dead-letters, by `champion` and `candidate`.
        newly: The number of events that the candidate dead-letters and the champion scores, by reason.
        cured: The number of events that the champion dead-letters and the candidate scores.
        examples: The first events of each reason in `newly`, each with its error.
        flips: The number of events for each combination of decisions (the champion's first), equal decisions included.
        changed: The number of events whose scores differ.
        apart: The number of events whose scores differ in more than numbers, for example in the length of a list.
        total: The sum of the numeric distances of the scores.
        worst: The largest differences as a heap of tuples: distance, tie-breaker, difference.
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
    worst: list[tuple[float, int, ScoreDifference]] = field(default_factory=list)
    _pairs: PairSample = field(default_factory=lambda: PairSample(SAMPLE))

    def add(
        self,
        partition: Partition,
        offsets: Sequence[int],
        values: Sequence[bytes | None],
        champion: EventAnswers,
        candidate: EventAnswers,
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
            examples = self.examples.setdefault(poison.reason, [])
            if len(examples) < EXAMPLES:
                examples.append((Event(partition, offsets[row], values[row]), str(poison)))
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
                self._keep(ScoreDifference(size, event, champion.scores[row], candidate.scores[row]))

    def _keep(self, difference: ScoreDifference) -> None:
        entry = (difference.size, -self.changed, difference)
        if len(self.worst) < LARGEST:
            heapq.heappush(self.worst, entry)
        else:
            heapq.heapreplace(self.worst, entry)

    def largest(self) -> list[ScoreDifference]:
        """Return the largest differences in descending order."""
        return [difference for *_, difference in sorted(self.worst, reverse=True)]

    def flipped(self) -> int:
        """Return the number of events on which the versions decide differently."""
        return sum(count for (before, after), count in self.flips.items() if before != after)

    def decided(self) -> bool:
        """Return whether at least one version makes decisions."""
        return any(name is not None for pair in self.flips for name in pair)

    def drift(self) -> tuple[float | None, float | None]:
        """Return bias-corrected PSI and KS statistic of both versions' answers; each is None if it cannot be computed."""
        # If no scores are single numbers, the PSI is computed from the decisions and the KS statistic is None. If there are no
        # decisions either, both are None.
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


def _sizes(rows: Sequence[int], champion: EventAnswers, candidate: EventAnswers) -> Iterator[tuple[int, float]]:
    """Yield the rows in which the scores of the two versions differ, each with the distance between the scores."""
    apart = np.abs(candidate.numbers - champion.numbers)
    if champion.several or candidate.several:  # other outputs may differ while the deciding one is equal
        apart = np.full(len(apart), np.nan)
    for row in rows:
        size = float(apart[row])
        if size > 0.0:
            yield row, size
        elif math.isnan(size) and champion.scores[row] != candidate.scores[row]:  # not single numbers
            yield row, _distance(orjson.loads(champion.scores[row]), orjson.loads(candidate.scores[row]))


def _distance(first: Any, second: Any) -> float:
    """Return the largest difference between the numbers of two scores; infinity if the scores differ in more than numbers."""
    if isinstance(first, bool) or isinstance(second, bool) or isinstance(first, str) or first is None:
        return 0.0 if first == second else math.inf
    if isinstance(first, int | float) and isinstance(second, int | float):
        return abs(first - second)
    if isinstance(first, dict) and isinstance(second, dict) and first.keys() == second.keys():
        return max((_distance(value, second[name]) for name, value in first.items()), default=0.0)
    if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        return max(map(_distance, first, second), default=0.0)
    return math.inf
