"""What a campaign says: a line for each round, and the summary. Pure."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.campaigns.faults.rounds import COUNTED, Result


def line(result: Result) -> str:
    """One round; the seed plays it again."""
    worst = {name: max(result.counts.get(name, 0), result.audited.get(name, 0)) for name in COUNTED}
    counts = " ".join(f"{name} {count}" for name, count in worst.items())
    exits = ", ".join(f"{count}x {name}" for name, count in sorted(result.exits.items()))
    verdict = "ok" if result.clean else f"NOT CLEAN: {result.trouble}"
    return (
        f"round {result.round} seed {result.seed} [{'+'.join(result.faults)}] {result.protocol} {result.scorers} scorers: "
        f"{result.events} events {result.seconds:.0f} s stall {result.stall_seconds:.1f} s; {counts}; exits {exits}; {verdict}"
    )


def summary(results: Sequence[Result], brokers: int, rate: float, not_run: Sequence[str]) -> dict[str, Any]:
    """The whole campaign. Stalls are told by fault too, from rounds with that fault alone."""
    alone: dict[str, float] = {}
    for result in results:
        if len(result.faults) == 1:
            alone[result.faults[0]] = max(result.stall_seconds, alone.get(result.faults[0], 0.0))
    return {
        "clean": all(result.clean for result in results),
        "brokers": brokers,
        "rounds": len(results),
        "rounds_not_clean": [result.seed for result in results if not result.clean],
        "events": sum(result.events for result in results),
        "events_per_second": round(rate),
        "faults": dict(Counter(fault for result in results for fault in result.faults)),
        "not_run": list(not_run),
        "longest_stall_seconds": max((result.stall_seconds for result in results), default=0.0),
        "longest_stall_seconds_alone": alone,
        **{name: sum(max(r.counts.get(name, 0), r.audited.get(name, 0)) for r in results) for name in COUNTED},
        "lost_inputs": sum(result.lost_inputs for result in results),
        "strays": sum(result.strays for result in results),
    }
