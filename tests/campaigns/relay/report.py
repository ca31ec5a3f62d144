"""What a campaign says: a line for each round, and the summary. Pure."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.campaigns.relay.rounds import Result
from tests.integration.relay.counting import CLEAN


def line(result: Result) -> str:
    """One round; the seed plays it again."""
    counts = " ".join(f"{name} {count}" for name, count in result.worst.items())
    exits = ", ".join(f"{count}x {name}" for name, count in sorted(result.exits.items()))
    crashes = f" crashed {', '.join(result.crashes)};" if result.crashes else ""
    verdict = "ok" if result.clean else f"NOT CLEAN: {result.trouble}"
    return (
        f"round {result.round} seed {result.seed} [{'+'.join(result.faults)}] {result.lanes} lanes: "
        f"{result.records} records {result.seconds:.0f} s stall {result.stall_seconds:.1f} s;{crashes} {counts}; "
        f"exits {exits}; {verdict}"
    )


def summary(results: Sequence[Result], rate: float) -> dict[str, Any]:
    """The whole campaign. Stalls are told by fault too, from rounds with that fault alone."""
    alone: dict[str, float] = {}
    for result in results:
        if len(result.faults) == 1:
            alone[result.faults[0]] = max(result.stall_seconds, alone.get(result.faults[0], 0.0))
    return {
        "clean": all(result.clean for result in results),
        "rounds": len(results),
        "rounds_not_clean": [result.seed for result in results if not result.clean],
        "records": sum(result.records for result in results),
        "records_per_second": round(rate),
        "faults": dict(Counter(fault for result in results for fault in result.faults)),
        "crashes": dict(Counter(point for result in results for point in result.crashes)),
        "exits": dict(sum((Counter(result.exits) for result in results), Counter())),
        "longest_stall_seconds": max((result.stall_seconds for result in results), default=0.0),
        "longest_stall_seconds_alone": alone,
        **{name: sum(result.worst[name] for result in results) for name in CLEAN},
        "lost_inputs": sum(result.lost_inputs for result in results),
        "strays": sum(result.strays for result in results),
    }
