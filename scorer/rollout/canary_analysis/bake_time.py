"""The bake clock: how long a candidate has been observed under valid conditions. Pure.

The clock runs only while scorers serve every input partition at the channel's current revision, pairs arrive, and the analysis
is not behind. Time without observations does not count.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

BEHIND_SECONDS = 30.0
QUIET_SECONDS = 30.0  # without a new pair, after which the clock stops


@dataclass(frozen=True, slots=True)
class BakeConditions:
    """The state of scorers and analysis at one observation, which decides whether the bake clock runs.

    A pair is the champion's and the candidate's answer to one event.

    Attributes:
        cut_over: The number of input partitions that are served by scorers at the channel's current revision.
        partitions: The total number of input partitions.
        pair_age: The time since the analysis last found a pair, in seconds; None if it has found no pair.
        behind: The lag of the analysis in seconds.
        missing: Why there are no pairs; empty if there are pairs or the reason is not known.
    """

    cut_over: int
    partitions: int
    pair_age: float | None
    behind: float
    missing: str = ""

    def obstacles(self) -> Iterator[str]:
        """Yield the reasons why the clock does not run and the candidate cannot pass."""
        if self.cut_over < self.partitions or not self.partitions:
            yield f"{self.cut_over:,} of {self.partitions:,} partitions are cut over"
        if self.pair_age is None:
            yield f"no pairs: {self.missing}" if self.missing else "no pairs"
        elif self.pair_age >= QUIET_SECONDS:
            yield f"no pair for {self.pair_age:.0f} s"
        if self.behind >= BEHIND_SECONDS:
            yield f"the analysis is {self.behind:.0f} s behind"


@dataclass(frozen=True, slots=True)
class BakeClock:
    """The bake time so far: how long the candidate was observed while all BakeConditions were met.

    Attributes:
        baked: The bake time in seconds.
        seen: The Unix time of the last observation in seconds; None if a condition was not met at that observation.
    """

    baked: float = 0.0
    seen: float | None = None

    def advance(self, now: float, conditions: BakeConditions, apart: float = BEHIND_SECONDS) -> "BakeClock":
        """Return the clock after an observation at `now` (Unix seconds).

        The time since the previous observation counts if the conditions were met at both observations, and less than `apart`
        seconds passed between them.
        """
        # A longer gap does not count, because the analysis was behind.
        if any(conditions.obstacles()):
            return replace(self, seen=None)
        passed = 0.0 if self.seen is None else now - self.seen
        return BakeClock(self.baked + passed if 0.0 <= passed < apart else self.baked, now)

    def obstacles(self, wanted: float, conditions: BakeConditions) -> Iterator[str]:
        """Yield the reasons why the candidate cannot pass yet if `wanted` seconds of bake time are required."""
        yield from conditions.obstacles()
        if self.baked < wanted:
            yield f"baked for {self.baked:.0f} s of {wanted:.0f}"
