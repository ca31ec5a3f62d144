"""Pairs that both versions scored: how far their scores lie apart as distributions, and which decisions flip. Pure."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from publisher.kafka.partitions import Partition
from scorer.rollout import drift
from scorer.rollout.judgement.differences import Difference
from scorer.rollout.pair_sample import PairSample

MOST = 20_000  # pairs of scores


class Sample:
    """`flips` counts the decisions of all pairs, the champion's first; scores are compared on MOST pairs at most. The same
    pairs give the same figures, in any order."""

    def __init__(self) -> None:
        self.flips: Counter[tuple[str | None, str | None]] = Counter()
        self._pairs = PairSample(MOST)

    def add(self, partition: Partition, offsets: Sequence[int], found: Sequence[Difference]) -> None:
        """Take in pairs of a source partition; those that a version failed say nothing here."""
        self.flips.update(each.decisions for each in found if each.flip is not None)
        self._pairs.add(partition, offsets, np.array([each.scores for each in found], np.float64).reshape(-1, 2).T)

    def drift(self) -> tuple[float | None, float | None]:
        """PSI, without its bias, and KS of the scores; of the decisions, where scores are no single numbers, and KS None. None
        where there is neither."""
        pairs = self._pairs.pairs()
        if pairs.shape[1]:
            return drift.psi_without_bias(*pairs), drift.ks(*pairs)
        sides: tuple[Counter[str | None], Counter[str | None]] = Counter(), Counter()
        for pair, count in self.flips.items():
            for side, name in zip(sides, pair, strict=True):
                side[name] += count
        return (drift.psi_of_names(*sides) if self.flips else None), None
