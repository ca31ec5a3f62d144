"""Pairs that both versions scored: how far their scores lie apart as distributions, and which decisions flip. Pure."""

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from publisher.kafka.partitions import Partition
from scorer.evaluation import drift
from scorer.evaluation.score_pair_sample import PairSample
from scorer.rollout.canary_analysis.paired_metrics import PairDifferences

MOST = 20_000  # pairs of scores
Drift = tuple[float | None, float | None]


class DecisionSample:
    """`flips` counts the decisions of all pairs, the champion's first; scores are compared on MOST pairs at most. The same
    pairs give the same figures, in any order."""

    def __init__(self) -> None:
        self.flips: Counter[tuple[str | None, str | None]] = Counter()
        self._pairs = PairSample(MOST)
        self._drift: Drift | None = None

    def add(self, partition: Partition, offsets: NDArray[np.int64], found: PairDifferences) -> None:
        """Take in pairs of a source partition, (n,); those that a version failed say nothing here."""
        for kind, count in found.counts():
            if kind is not None and kind.flip is not None:
                self.flips[kind.decisions] += count
        self._pairs.add(partition, offsets, found.scores)
        self._drift = None

    def drift(self) -> Drift:
        """PSI, without its bias, and KS of the scores; of the decisions, where scores are no single numbers, and KS None. None
        where there is neither."""
        if self._drift is None:
            self._drift = self._found()
        return self._drift

    def _found(self) -> Drift:
        pairs = self._pairs.pairs()
        if pairs.shape[1]:
            return drift.psi_without_bias(*pairs), drift.ks(*pairs)
        sides: tuple[Counter[str | None], Counter[str | None]] = Counter(), Counter()
        for pair, count in self.flips.items():
            for side, name in zip(sides, pair, strict=True):
                side[name] += count
        return (drift.psi_of_names(*sides) if self.flips else None), None
