"""What the demo found: counts from the audit, quality from the known outcomes, latencies from the live reader. Pure."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from publisher.audit.ledger import EventReport
from scorer.demo.arrivals import Arrivals, percentiles
from scorer.demo.flights import auc

BEFORE_MS, AFTER_MS = 1_000, 10_000  # a pause is looked for among events sent this long around its cause


@dataclass(frozen=True, slots=True)
class Marks:
    """When things were done, Unix ms; None where they were left out. `began` is the replay at full rate."""

    began: int
    promoted: int
    killed: int | None
    ended: int


@dataclass(frozen=True, slots=True)
class VersionResult:
    """One version's share. `auc` is over the flights whose outcome is known, NaN where it is not defined."""

    events: int
    auc: float


@dataclass(frozen=True, slots=True)
class Summary:
    """The demo's JSON. Latency is from the input's timestamp to its arrival at a live read_committed reader."""

    events: int
    scored: int
    missing: int
    duplicates: int
    phantoms: int
    out_of_order: int
    version_regressions: int
    dead_lettered: int
    versions: dict[str, VersionResult]
    cut_over: dict[str, int]
    throughput_eps: float
    latency_ms: dict[str, float]
    latency_before_swap_ms: dict[str, float]
    swap_pause_ms: float | None
    kill_pause_ms: float | None

    @property
    def clean(self) -> bool:
        """Nothing missing, doubled, invented or out of order, and both versions scored."""
        faults = self.missing + self.duplicates + self.phantoms + self.out_of_order + self.version_regressions
        return not faults and len(self.versions) > 1

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"clean": self.clean, **asdict(self)}


def summarise(
    report: EventReport,
    scores: Mapping[str, list[tuple[float, bool | None]]],
    cut_over: Mapping[str, int],
    arrivals: Arrivals,
    marks: Marks,
) -> Summary:
    """Put it together. `scores` has (score, known outcome or None) by version; `cut_over` an offset by partition."""
    p50, p99 = percentiles(arrivals.latencies(since=marks.began), (50, 99))
    before = percentiles(arrivals.latencies(marks.began, marks.promoted), (50, 99))
    return Summary(
        events=report.events,
        scored=report.scored,
        missing=report.missing + report.pending,  # everything was waited for
        duplicates=report.duplicates,
        phantoms=report.phantoms,
        out_of_order=report.out_of_order,
        version_regressions=report.version_regressions,
        dead_lettered=report.dead_lettered,
        versions=by_version(scores),
        cut_over=dict(cut_over),
        throughput_eps=rate(arrivals, marks),
        latency_ms={"p50": p50, "p99": p99},
        latency_before_swap_ms={"p50": before[0], "p99": before[1]},
        swap_pause_ms=pause(arrivals, marks.promoted, before=marks.killed),
        kill_pause_ms=pause(arrivals, marks.killed),
    )


def by_version(scores: Mapping[str, list[tuple[float, bool | None]]]) -> dict[str, VersionResult]:
    """Each version's share of scores as `summarise` takes them."""
    return {version: VersionResult(len(rows), quality(rows)) for version, rows in sorted(scores.items())}


def rate(arrivals: Arrivals, marks: Marks) -> float:
    """Scores a second, from the begin of the replay at full rate to its end."""
    return round(len(arrivals.latencies(since=marks.began)) / max((marks.ended - marks.began) / 1_000, 1e-3), 1)


def quality(rows: list[tuple[float, bool | None]]) -> float:
    """AUC over the rows whose outcome is known."""
    known = [(score, outcome) for score, outcome in rows if outcome is not None]
    return round(auc(known), 4) if len({outcome for _, outcome in known}) > 1 else math.nan


def pause(arrivals: Arrivals, at: int | None, before: int | None = None) -> float | None:
    """The largest latency among the events sent around `at`, and before whatever `before` delays; None where there are none."""
    if at is None:
        return None
    until = at + AFTER_MS if before is None else min(at + AFTER_MS, before - BEFORE_MS)
    around = arrivals.latencies(at - BEFORE_MS, until)
    return float(around.max()) if len(around) else None


def table(summary: Summary) -> Table:
    """For people."""
    shown = Table("", "", title="what the score topic holds", show_header=False)
    for name in (
        "events",
        "scored",
        "missing",
        "duplicates",
        "phantoms",
        "out_of_order",
        "version_regressions",
        "dead_lettered",
    ):
        shown.add_row(name.replace("_", " "), f"{getattr(summary, name):,}")
    for version, result in summary.versions.items():
        shown.add_row(f"version {version}", f"{result.events:,} events, AUC over its own flights {result.auc:.4f}")
    offsets = ", ".join(f"{partition}: {offset}" for partition, offset in summary.cut_over.items())
    shown.add_row("cut-over offsets", offsets or "-")
    shown.add_row("throughput", f"{summary.throughput_eps:,.0f} events/s")
    shown.add_row("latency p50 / p99", "{p50} / {p99} ms".format(**summary.latency_ms))
    shown.add_row("latency before the swap", "{p50} / {p99} ms".format(**summary.latency_before_swap_ms))
    for name, value in (("swap", summary.swap_pause_ms), ("kill", summary.kill_pause_ms)):
        shown.add_row(f"longest pause at the {name}", "-" if value is None else f"{value:,.0f} ms")
    return shown
