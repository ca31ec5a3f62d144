"""The outcome of a round, its line of output, and the summary of a campaign. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar


@dataclass
class Result:
    """The outcome of a round.

    `stall_seconds` is the longest pause of a partition for a reader of committed records. `counts` and `audited` are the two
    counts, fault by fault: by the tests' own auditor and by the product's. `lost_inputs` are inputs that the brokers have
    acknowledged and the input topic does not hold. `strays` are EndTxn requests that were delivered late. `exits` counts how
    processes ended. `logs` is the folder of their logs, if it was kept.
    """

    COUNTED: ClassVar[tuple[str, ...]]
    """The faults that both auditors count."""

    round: int
    seed: int
    faults: tuple[str, ...]
    seconds: float = 0.0
    stall_seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    audited: dict[str, int] = field(default_factory=dict)
    lost_inputs: int = 0
    strays: int = 0
    exits: dict[str, int] = field(default_factory=dict)
    trouble: str = ""
    logs: str = ""

    @property
    def worst(self) -> dict[str, int]:
        return {name: max(self.counts.get(name, 0), self.audited.get(name, 0)) for name in self.COUNTED}

    @property
    def clean(self) -> bool:
        """Whether both counts are zero, all written inputs exist, and the round settled."""
        return not (sum(self.counts.values()) or sum(self.audited.values()) or self.lost_inputs or self.trouble)

    @property
    def played(self) -> str:
        """The processes of the round and its number of inputs."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "clean": self.clean}

    def ended(self, codes: Sequence[int]) -> None:
        """Count how processes ended: exit codes, and signals by number."""
        self.exits = dict(Counter(f"signal {-code}" if code < 0 else f"code {code}" for code in codes))


def line(result: Result) -> str:
    counts = " ".join(f"{name} {count}" for name, count in result.worst.items())
    exits = ", ".join(f"{count}x {name}" for name, count in sorted(result.exits.items()))
    verdict = "ok" if result.clean else f"NOT CLEAN: {result.trouble}"
    return (
        f"round {result.round} seed {result.seed} [{'+'.join(result.faults)}] {result.played} {result.seconds:.0f} s "
        f"stall {result.stall_seconds:.1f} s; {counts}; exits {exits}; {verdict}"
    )


def summary(results: Sequence[Result], counted: Sequence[str], **more: Any) -> dict[str, Any]:
    """Return the figures of the whole campaign. Stalls are also reported by fault, from rounds with that fault alone."""
    alone: dict[str, float] = {}
    for result in results:
        if len(result.faults) == 1:
            alone[result.faults[0]] = max(result.stall_seconds, alone.get(result.faults[0], 0.0))
    return {
        "clean": all(result.clean for result in results),
        "rounds": len(results),
        "rounds_not_clean": [result.seed for result in results if not result.clean],
        **more,
        "faults": dict(Counter(fault for result in results for fault in result.faults)),
        "longest_stall_seconds": max((result.stall_seconds for result in results), default=0.0),
        "longest_stall_seconds_alone": alone,
        **{name: sum(result.worst[name] for result in results) for name in counted},
        "lost_inputs": sum(result.lost_inputs for result in results),
        "strays": sum(result.strays for result in results),
    }
