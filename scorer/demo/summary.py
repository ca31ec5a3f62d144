"""The summary of the demo: counts of the audit, quality from the known outcomes, and latencies. Pure."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from publisher.audit.event_audit import EventReport
from scorer.demo.flights import auc
from scorer.demo.score_reader import ReceivedScores, percentiles

# the time before and after a version change or a kill; its pause is the largest latency of events sent in this time
BEFORE_MS = 1_000
AFTER_MS = 10_000


@dataclass(frozen=True, slots=True)
class DemoTimes:
    """The times of the demo's steps in Unix ms; None for a step that was left out.

    `began` is the start of the replay at full rate.
    """

    began: int
    promoted: int
    killed: int | None
    ended: int


@dataclass(frozen=True, slots=True)
class VersionResult:
    """The number of events that a version scored, and the AUC of these scores.

    `auc` is over the flights with a known outcome; NaN if all outcomes are the same.
    """

    events: int
    auc: float


@dataclass(frozen=True, kw_only=True)
class TopicSummary:
    """The counts and latencies of one score topic, from an audit and from a live consumer.

    A latency is the time from the timestamp of an event until the live consumer receives its score.

    Attributes:
        phantoms: The number of scores of events that do not exist.
        throughput_eps: The received scores per second.
        latency_ms: The 50th and 99th percentile of the latencies, by `p50` and `p99`.
        swap_pause_ms: The largest latency around the promotion; None if unknown.
        kill_pause_ms: The largest latency around the time when a process was killed; None if unknown.
    """

    events: int
    scored: int
    missing: int
    duplicates: int
    phantoms: int
    out_of_order: int
    versions: dict[str, VersionResult]
    throughput_eps: float
    latency_ms: dict[str, float]
    swap_pause_ms: float | None
    kill_pause_ms: float | None

    @property
    def clean(self) -> bool:
        """Whether no score is missing, duplicated, out of order or a phantom."""
        return not (self.missing + self.duplicates + self.phantoms + self.out_of_order)

    def to_dict(self) -> dict[str, Any]:
        """Return the counts and latencies as a dict of JSON values."""
        return {"clean": self.clean, **asdict(self)}

    def table(self, title: str = "scores", unit: str = "events") -> Table:
        """Return the counts as a table; `unit` is the noun for the counted events in the rows of versions and throughput."""
        table = Table("", "", title=title, show_header=False)
        values = asdict(self)
        for name, value in values.items():
            if isinstance(value, int):
                table.add_row(name.replace("_", " "), f"{value:,}")
        for version, result in self.versions.items():
            table.add_row(f"version {version}", f"{result.events:,} {unit}, AUC over its own flights {result.auc:.4f}")
        if len(self.versions) > 1:
            table.add_row("", "the versions scored different flights: these AUCs do not compare them")
        if "cut_over" in values:
            offsets = ", ".join(f"{partition}: {offset}" for partition, offset in values["cut_over"].items())
            table.add_row("cut-over offsets", offsets or "-")
        table.add_row("throughput", f"{self.throughput_eps:,.0f} {unit}/s")
        table.add_row("latency p50 / p99", "{p50} / {p99} ms".format(**self.latency_ms))
        for cause in ("swap", "kill"):
            if before := values.get(f"latency_before_{cause}_ms"):
                table.add_row(f"latency before the {cause}", "{p50} / {p99} ms".format(**before))
        for cause in ("swap", "kill"):
            value = values[f"{cause}_pause_ms"]
            table.add_row(f"longest pause at the {cause}", "-" if value is None else f"{value:,.0f} ms")
        return table


@dataclass(frozen=True, kw_only=True)
class DemoSummary(TopicSummary):
    """The summary of the score topic that the demo's scorers write, with its version changes and dead letters.

    `cut_over` has the first offset that the new version scored, by partition.
    """

    version_regressions: int
    dead_lettered: int
    cut_over: dict[str, int]
    latency_before_swap_ms: dict[str, float]

    @property
    def clean(self) -> bool:
        """Whether the audit found no fault, and the change of the version succeeded.

        The change succeeded if both versions scored, and no partition has a score of the old version after one of the new
        version.
        """
        return super().clean and not self.version_regressions and len(self.versions) > 1


def summarise(
    report: EventReport,
    scores: Mapping[str, list[tuple[float, bool | None]]],
    cut_over: Mapping[str, int],
    arrivals: ReceivedScores,
    marks: DemoTimes,
) -> DemoSummary:
    """Return the summary of the demo.

    Args:
        report: The audit of the topics.
        scores: Pairs of score and outcome (None if unknown), by version.
        cut_over: The first offset of the new version, by partition.
        arrivals: The received scores.
        marks: The times of the steps.
    """
    return DemoSummary(
        events=report.events,
        scored=report.scored,
        missing=report.missing + report.pending,  # all scores have been waited for
        duplicates=report.duplicates,
        phantoms=report.phantoms,
        out_of_order=report.out_of_order,
        version_regressions=report.version_regressions,
        dead_lettered=report.dead_lettered,
        versions=by_version(scores),
        cut_over=dict(cut_over),
        latency_before_swap_ms=latency(arrivals, marks.began, marks.promoted),
        **measured(arrivals, marks),
    )


def measured(arrivals: ReceivedScores, marks: DemoTimes) -> dict[str, Any]:
    """Return throughput, latency and pauses. The keys are field names of `TopicSummary`."""
    seconds = max((marks.ended - marks.began) / 1_000, 1e-3)
    return {
        "throughput_eps": round(len(arrivals.latencies(since=marks.began)) / seconds, 1),
        "latency_ms": latency(arrivals, marks.began),
        "swap_pause_ms": pause(arrivals, marks.promoted, before=marks.killed),
        "kill_pause_ms": pause(arrivals, marks.killed),
    }


def latency(arrivals: ReceivedScores, since: float, until: float = math.inf) -> dict[str, float]:
    """Return p50 and p99 (latencies in ms) over the events that were sent at or after `since` and before `until` (Unix ms)."""
    return dict(zip(("p50", "p99"), percentiles(arrivals.latencies(since, until), (50, 99)), strict=True))


def by_version(scores: Mapping[str, list[tuple[float, bool | None]]]) -> dict[str, VersionResult]:
    """Return the result of each version from its pairs of score and outcome (None if unknown)."""
    return {version: VersionResult(len(rows), quality(rows)) for version, rows in sorted(scores.items())}


def quality(rows: list[tuple[float, bool | None]]) -> float:
    """Return the AUC over the pairs with an outcome; NaN if all outcomes are the same."""
    labelled = [(score, outcome) for score, outcome in rows if outcome is not None]
    return round(auc(labelled), 4) if len({outcome for _, outcome in labelled}) > 1 else math.nan


def pause(arrivals: ReceivedScores, at: int | None, before: int | None = None) -> float | None:
    """Return the largest latency, in ms, of the events that were sent around the time `at` (Unix ms); None if unknown.

    `before` is the time of a later step of the demo. Events around it are left out, because that step may have delayed them.
    """
    if at is None:
        return None
    until = at + AFTER_MS if before is None else min(at + AFTER_MS, before - BEFORE_MS)
    around = arrivals.latencies(at - BEFORE_MS, until)
    return float(around.max()) if len(around) else None
