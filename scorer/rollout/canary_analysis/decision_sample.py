"""Measure how far the score distributions of both versions differ, and count decision flips. Pure."""

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from publisher.kafka.partitions import Partition
from scorer.evaluation import drift
from scorer.evaluation.score_pair_sample import PairSample
from scorer.rollout.canary_analysis.paired_metrics import PairDifferences

MAX_PAIRS = 20_000  # pairs of scores
Drift = tuple[float | None, float | None]


class DecisionSample:
    """The counts of both versions' decisions on the same events, and a sample of their scores.

    A pair is the champion's and the candidate's answer to one event. The sample has the scores of at most MAX_PAIRS pairs.
    Neither the counts nor the sample depend on the order in which pairs are added.

    Attributes:
        flips: The number of pairs by (champion's decision, candidate's decision), including pairs with equal decisions.
    """

    def __init__(self) -> None:
        self.flips: Counter[tuple[str | None, str | None]] = Counter()
        self._pairs = PairSample(MAX_PAIRS)
        self._drift: Drift | None = None

    def add(self, partition: Partition, offsets: NDArray[np.int64], differences: PairDifferences) -> None:
        """Add n pairs of a source partition with the offsets of their events, (n,).

        A pair in which a version failed to score the event is ignored.
        """
        for kind, count in differences.counts():
            if kind is not None and kind.flip is not None:
                self.flips[kind.decisions] += count
        self._pairs.add(partition, offsets, differences.scores)
        self._drift = None

    def drift(self) -> Drift:
        """Return the bias-corrected PSI and the KS statistic between both versions' scores, each None if not computable."""
        # If no scores are single numbers, the PSI is computed from the decisions and the KS statistic is None. If there are no
        # decisions either, both are None.
        if self._drift is None:
            self._drift = self._measure_drift()
        return self._drift

    def _measure_drift(self) -> Drift:
        pairs = self._pairs.pairs()
        if pairs.shape[1]:
            return drift.psi_without_bias(*pairs), drift.ks(*pairs)
        sides: tuple[Counter[str | None], Counter[str | None]] = Counter(), Counter()
        for pair, count in self.flips.items():
            for side, name in zip(sides, pair, strict=True):
                side[name] += count
        return (drift.psi_of_names(*sides) if self.flips else None), None
