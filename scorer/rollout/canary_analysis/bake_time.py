"""The bake clock: how long a candidate has been observed under valid conditions. Pure.

The clock runs only while every partition is cut over, pairs arrive, and the analysis is not behind. Time without observations
does not count.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

BEHIND_SECONDS = 30.0
QUIET_SECONDS = 30.0  # without a pair


@dataclass(frozen=True, slots=True)
class BakeConditions:
    """The conditions of the bake clock at one observation.

    Attributes:
        cut_over: The number of partitions that the current revision serves.
        partitions: The number of all partitions.
        pair_age: The age of the newest pair in seconds; None if there is no pair.
        behind: The lag of the analysis in seconds.
    """

    cut_over: int
    partitions: int
    pair_age: float | None
    behind: float

    def obstacles(self) -> Iterator[str]:
        """Yield the reasons why the clock does not run and the candidate cannot pass."""
        if self.cut_over < self.partitions or not self.partitions:
            yield f"{self.cut_over:,} of {self.partitions:,} partitions are cut over"
        if self.pair_age is None:
            yield "no pairs"
        elif self.pair_age >= QUIET_SECONDS:
            yield f"no pair for {self.pair_age:.0f} s"
        if self.behind >= BEHIND_SECONDS:
            yield f"the analysis is {self.behind:.0f} s behind"


@dataclass(frozen=True, slots=True)
class BakeClock:
    """The bake time so far.

    Attributes:
        baked: The bake time in seconds.
        seen: The Unix time of the last observation in seconds; None if the clock did not run then.
    """

    baked: float = 0.0
    seen: float | None = None

    def advance(self, now: float, conditions: BakeConditions, apart: float = BEHIND_SECONDS) -> "BakeClock":
        """Return the clock after an observation at `now`.

        The time since the last observation counts if the clock ran at both and they are less than `apart` seconds apart: an
        analysis that did not observe for longer was behind.
        """
        if any(conditions.obstacles()):
            return replace(self, seen=None)
        passed = 0.0 if self.seen is None else now - self.seen
        return BakeClock(self.baked + passed if 0.0 <= passed < apart else self.baked, now)

    def obstacles(self, wanted: float, conditions: BakeConditions) -> Iterator[str]:
        """Yield the reasons why the candidate cannot pass yet if `wanted` seconds of bake time are required."""
        yield from conditions.obstacles()
        if self.baked < wanted:
            yield f"baked for {self.baked:.0f} s of {wanted:.0f}"
