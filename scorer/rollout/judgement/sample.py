"""The newest pairs that both versions scored: how far their scores lie apart as distributions, and which decisions flip."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from scorer.rollout import drift
from scorer.rollout.judgement.differences import Difference

NEWEST = 20_000


class Sample:
    """Of at most NEWEST pairs. `flips` counts the decisions of all pairs, the champion's first."""

    def __init__(self) -> None:
        self.flips: Counter[tuple[str | None, str | None]] = Counter()
        self._numbers = np.empty((NEWEST, 2))
        self._added = 0

    def add(self, found: Sequence[Difference]) -> None:
        """Take in pairs; those that a version failed say nothing here."""
        self.flips.update(each.decisions for each in found if each.flip is not None)
        scores = np.array([each.scores for each in found]).reshape(-1, 2)
        for start in range(0, len(finite := scores[np.isfinite(scores).all(axis=1)]), NEWEST):
            some = finite[start : start + NEWEST]
            self._numbers[np.arange(self._added, self._added + len(some)) % NEWEST] = some
            self._added += len(some)

    def drift(self) -> tuple[float | None, float | None]:
        """PSI, without its bias, and KS of the scores; of the decisions, where scores are no single numbers, and KS None. None
        where there is neither."""
        pairs = self._numbers[: min(self._added, NEWEST)]
        if len(pairs):
            return drift.psi_without_bias(pairs[:, 0], pairs[:, 1]), drift.ks(pairs[:, 0], pairs[:, 1])
        sides: tuple[Counter[str | None], Counter[str | None]] = Counter(), Counter()
        for pair, count in self.flips.items():
            for side, name in zip(sides, pair, strict=True):
                side[name] += count
        return (drift.psi_of_names(*sides) if self.flips else None), None
