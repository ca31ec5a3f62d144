"""The matrix: a crash before and after every step of the transaction session, a round each."""

from collections.abc import Callable

from tests.chaos.faults.plan import POINTS, ScorerRound
from tests.chaos.faults.rounds import play
from tests.chaos.faults.stage import Ground, ScorerResult
from tests.chaos.plan import Step

LOAD_SECONDS = 6.0
CRASH_AT = 2.0


def crash_at(point: str, number: int, seed: int) -> ScorerRound:
    """Plan a round in which the first of two scorers crashes at this point. The group protocols alternate."""
    protocol = ("classic", "consumer")[(number + seed) % 2]
    return ScorerRound(number, seed, (point,), LOAD_SECONDS, (Step(CRASH_AT, "arm", f"0 {point}"),), protocol, 2)


def run(ground: Ground, seed: int, rate: float, report: Callable[[ScorerResult], object]) -> None:
    """Play the matrix. A point without its crash is reported as trouble: its round has proved nothing."""
    for number, point in enumerate(POINTS, 1):
        result = play(ground, crash_at(point, number, seed), rate)
        if "signal 9" not in result.exits:
            result.trouble = result.trouble or "the armed crash did not happen"
        report(result)
