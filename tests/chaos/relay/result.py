"""The outcome of a round of the relay's campaign, and the exit codes that a relay may have."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.chaos.relay.plan import SIDES, RelayRound
from tests.chaos.result import Result
from tests.integration.relay.counting import CLEAN

REFUSED, UNREACHABLE = 3, 4
CLUSTER_UNAVAILABLE = {
    f"{fault}-{side}" for fault in ("kill", "freeze", "half-open") for side in SIDES
}  # a relay that starts during such a fault may give up
EXPECTED = {0, -9, -15}  # -15: asked to end before it could listen


@dataclass
class RelayResult(Result):
    """The outcome of a round with a relay. `crashes`: the points at which the relay was killed."""

    COUNTED = tuple(CLEAN)

    lanes: int = 0
    transactional: bool = False
    records: int = 0
    crashes: list[str] = field(default_factory=list)

    @property
    def played(self) -> str:
        crashes = f"crashed {', '.join(self.crashes)}, " if self.crashes else ""
        return f"{self.lanes} lanes: {self.records} records {crashes}"

    def judge_exits(self, played: RelayRound, first: Sequence[int], second: Sequence[int]) -> None:
        """Check that only the replaced relay ended by itself; `first` and `second` are the exit codes of both slots."""
        codes = [*first, *second]
        if played.taken_over:
            if first[-1:] == [REFUSED]:
                codes.remove(REFUSED)
            else:
                self.trouble = self.trouble or f"the relay that was replaced did not end as it must: {first}"
        given_up = {UNREACHABLE} if CLUSTER_UNAVAILABLE & set(played.faults) else set()
        if unexpected := set(codes) - EXPECTED - given_up:
            self.trouble = self.trouble or f"a relay ended with {sorted(unexpected)}"
