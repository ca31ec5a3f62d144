"""The bake clock: for how long a candidate has been watched. Pure.

It runs only while every partition is cut over, pairs arrive, and the judge is not behind: time in which nothing could be seen
does not count.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

BEHIND_SECONDS = 30.0
QUIET_SECONDS = 30.0  # without a pair


@dataclass(frozen=True, slots=True)
class BakeConditions:
    """What the judge sees at one look. `cut_over`, of so many `partitions`: those that the revision serves. `pair_age` is how
    many seconds ago the newest pair was taken in, None: there was none. `behind` is how many seconds the judge is behind."""

    cut_over: int
    partitions: int
    pair_age: float | None
    behind: float

    def obstacles(self) -> Iterator[str]:
        """Why the clock stands, and nothing may pass."""
        if self.cut_over < self.partitions or not self.partitions:
            yield f"{self.cut_over:,} of {self.partitions:,} partitions are cut over"
        if self.pair_age is None:
            yield "no pairs"
        elif self.pair_age >= QUIET_SECONDS:
            yield f"no pair for {self.pair_age:.0f} s"
        if self.behind >= BEHIND_SECONDS:
            yield f"the judge is {self.behind:.0f} s behind"


@dataclass(frozen=True, slots=True)
class BakeClock:
    """`baked` seconds so far. `seen` is the time of the last look in Unix seconds, None where the clock stood then."""

    baked: float = 0.0
    seen: float | None = None

    def looked(self, now: float, sight: BakeConditions, apart: float = BEHIND_SECONDS) -> "BakeClock":
        """After a look at `now`. The time since the last look counts where the clock ran at both, and they are not so many
        seconds `apart`: a judge that did not look was behind."""
        if any(sight.obstacles()):
            return replace(self, seen=None)
        passed = 0.0 if self.seen is None else now - self.seen
        return BakeClock(self.baked + passed if 0.0 <= passed < apart else self.baked, now)

    def obstacles(self, wanted: float, sight: BakeConditions) -> Iterator[str]:
        """Why nothing may pass yet, where `wanted` seconds are asked for."""
        yield from sight.obstacles()
        if self.baked < wanted:
            yield f"baked for {self.baked:.0f} s of {wanted:.0f}"
