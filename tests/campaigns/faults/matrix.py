"""The matrix: a crash before and after every step of the transaction session, a round each."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.table import Table

from tests.campaigns.faults.plan import POINTS, ScorerRound
from tests.campaigns.faults.rounds import play
from tests.campaigns.faults.stage import Ground, ScorerResult
from tests.campaigns.plan import Step

Told = Callable[[ScorerResult], object]

LOAD_SECONDS = 6.0
CRASH_AT = 2.0


def rounds(seed: int, points: Sequence[str] = POINTS) -> Iterator[ScorerRound]:
    """A round for each point: the first of two scorers crashes there. The group protocols take turns."""
    for number, point in enumerate(points, 1):
        protocol = ("classic", "consumer")[(number + seed) % 2]
        yield ScorerRound(number, seed, (point,), LOAD_SECONDS, (Step(CRASH_AT, "arm", f"0 {point}"),), protocol, 2)


def run(ground: Ground, seed: int, rate: float, told: Told, points: Sequence[str] = POINTS) -> list[ScorerResult]:
    """Play the matrix. A point whose crash did not happen is trouble: it has proved nothing."""
    results = []
    for played in rounds(seed, points):
        result = play(ground, played, rate)
        if "signal 9" not in result.exits:
            result.trouble = result.trouble or "the armed crash did not happen"
        told(result)
        results.append(result)
    return results


def table(results: Sequence[ScorerResult], brokers: int) -> Any:
    """For people: a row for each point."""
    shown = Table("crash", "protocol", "events", "stall s", "missing", "duplicates", "phantoms", "order", "versions", "")
    shown.title = f"crash matrix, {brokers} broker{'s' if brokers > 1 else ''}"
    for result in results:
        counts = [str(count) for count in result.worst.values()]
        shown.add_row(
            result.faults[0], result.protocol, f"{result.events:,}", f"{result.stall_seconds:.1f}", *counts,
            "ok" if result.clean else result.trouble,
        )  # fmt: skip
    return shown
