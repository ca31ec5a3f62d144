"""The result of the demo: the counts of the audit, the run, and the swap to the new version. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

COUNTS = ("missing", "duplicates", "phantoms", "out_of_order", "version_regressions", "dead_lettered")


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The result of the training demo.

    Attributes:
        events: The number of events.
        scored: The number of scored events.
        counts: The number of faults that the audit of the topics found, by kind.
        scores: The number of scores by version.
        run: The report of the run, as JSON.
        kept: The steps that the run had completed before the demo killed it.
        moves: How often the run moved the channel.
        admitted: Whether the scorers' policy admits the new version.
        swap_seconds: The time from the channel move until every partition had a score of the new version.
        seconds: The duration of the demo.
    """

    events: int
    scored: int
    counts: dict[str, int]
    scores: dict[str, int]
    run: dict[str, Any]
    kept: list[str]
    moves: int
    admitted: bool
    swap_seconds: float
    seconds: float

    @property
    def clean(self) -> bool:
        """Whether the demo succeeded.

        The audit must have found no fault, and the run must have moved the channel exactly once, to a version that passed the
        gate. This version must have scores.
        """
        flows = self.scores.get(self.run["version"], 0) > 0
        passed = self.run["outcome"] == "promoted" and self.run["comparison"]["verdict"] == "passed"
        return not any(self.counts.values()) and self.events == self.scored and passed and flows and self.moves == 1

    def to_dict(self) -> dict[str, Any]:
        return {"clean": self.clean, **asdict(self)}

    def table(self) -> Table:
        shown = Table("", "", title="result", show_header=False)
        for name, value in self._rows():
            shown.add_row(name, value)
        return shown

    def _rows(self) -> Iterator[tuple[str, str]]:
        for step in self.run["steps"]:
            kept_note = "   (before the kill)" if step["step"] in self.kept else ""
            yield f"step {step['step']}", f"{step['seconds']:.1f} s{kept_note}"
        yield from _judged(self.run["comparison"])
        yield "version", f"{self.run['version']}  {self.run['digest']}"
        yield "moves of the channel by this run", str(self.moves)
        yield "admitted by the scorers' policy", "yes" if self.admitted else "NO"
        yield "from the move to its scores in every partition", f"{self.swap_seconds:.1f} s"
        yield "events, scored", f"{self.events:,}, {self.scored:,}"
        for version, count in self.scores.items():
            yield f"scores of {version}", f"{count:,}"
        for name, count in self.counts.items():
            yield name.replace("_", " "), f"{count:,}"
        yield "pictures", "\n".join(self.run["pictures"])
        yield "all of it", f"{self.seconds:.1f} s"


def _judged(comparison: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    difference = comparison["difference"]
    metric = comparison["metric"]
    for name in ("champion", "challenger"):
        side = comparison[name]
        yield f"{name} {side['version']}", f"{metric.upper()} {side['metrics'][metric]:.4f}"
    interval = "{value:+.4f}, surely {low:+.4f} to {high:+.4f}".format(**difference)
    yield "difference", f"{interval}, on {comparison['rows']['count']:,} events of {comparison['rows']['blocks']} days"
    yield "verdict", f"{comparison['verdict']}: {comparison['because']}"
