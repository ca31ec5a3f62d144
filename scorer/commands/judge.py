"""`scorer judge`: decide from events scored by both versions whether a candidate may be promoted.

The command joins no consumer group and writes nothing.
"""

import contextlib
import sys
import time
from collections.abc import Sequence
from typing import Annotated

import orjson
import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from model_registry.untrusted_input.terminal_text import printable_json
from publisher.errors import FINDING
from publisher.kafka.partitions import Partition
from publisher.kafka.reader import TopicReader
from publisher.kafka.topics import Bounds
from publisher.runtime.command_line import (
    Config,
    From,
    Json,
    Last,
    Set,
    To,
    err_console,
    parse_share,
    print_data,
    print_json,
    time_range,
)
from publisher.runtime.malloc_tuning import limit_malloc_arenas, start_gc_thread
from publisher.runtime.time_range import TimeRange, seconds
from scorer.evaluation.join_labels import labels_topic
from scorer.rollout.canary_analysis import contestants
from scorer.rollout.canary_analysis.analysis_report import AnalysisReport
from scorer.rollout.canary_analysis.analysis_tables import analysis_tables
from scorer.rollout.canary_analysis.analyzer import CanaryAnalyzer, answer_spans
from scorer.rollout.canary_analysis.bake_time import BakeClock, BakeConditions
from scorer.rollout.canary_analysis.contestants import Contestants, ContestVersion
from scorer.rollout.canary_analysis.rules import ERRORS, Margins
from scorer.rollout.canary_analysis.verdict import CanaryDecision, CanaryVerdict, decide
from scorer.settings import Settings, load

USUAL = Margins()
LAST = "1h"
POLL_SECONDS = 1.0
NO_VERSIONS = "no records in this time range name a champion and a candidate"
STYLES = {CanaryDecision.PROMOTE: "green", CanaryDecision.ROLL_BACK: "bold red", CanaryDecision.HOLD: "yellow"}


def judge(
    path: Config,
    flags: Set = None,
    last: Last = None,
    start: From = None,
    end: To = None,
    champion: Annotated[
        str | None, typer.Option(help="The champion, a tag or a digest.", show_default="of the newest scores")
    ] = None,
    candidate: Annotated[
        str | None, typer.Option(help="The candidate, a tag or a digest.", show_default="the shadow's newest, or the canary")
    ] = None,
    max_errors: Annotated[
        float,
        typer.Option(
            help="How much larger the candidate's share of failed events may be than the champion's.", parser=parse_share
        ),
    ] = USUAL.errors,
    max_flips: Annotated[
        float,
        typer.Option(
            help="The largest allowed share of events on which the decisions of both versions differ.", parser=parse_share
        ),
    ] = USUAL.flips,
    max_psi: Annotated[
        float, typer.Option(help="The largest allowed population stability index of the scores.", min=0.0)
    ] = USUAL.psi,
    max_brier: Annotated[
        float | None,
        typer.Option(
            help="How much larger the candidate's Brier score may be than the champion's, on labelled events.",
            min=0.0,
            show_default="not judged",
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Repeat the analysis every second until it has a verdict.")] = False,
    bake: Annotated[
        str | None, typer.Option(help="With --follow: how long to observe a candidate before it passes (15m).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Decide from events that both versions scored whether a candidate may be promoted.

    Prints promote, roll back or hold, with reasons. The default time range is the last hour. Exit code 0 for promote, else 1.
    """
    if follow and end is not None:
        raise typer.BadParameter("--follow has no end time; remove --to", param_hint="--to")
    bake_seconds = _bake_seconds(bake, follow)
    limit_malloc_arenas()
    settings = load(path, flags or []).settings
    margins = Margins(max_errors, max_flips, max_psi, max_brier)
    if max_brier is not None:
        labels_topic(settings)
    window = time_range(start, end, last if last or start or end else LAST)
    given = [None if name is None else contestants.find_version(settings, name) for name in (champion, candidate)]
    spans, versions = _contestants(settings, window, given, follow)
    if versions is None:
        if as_json:
            print_json({"verdict": CanaryDecision.HOLD, "why": [NO_VERSIONS], "rules": []})
        err_console.print(Text.assemble(("hold", "yellow"), f": {NO_VERSIONS}"))
        raise typer.Exit(FINDING)
    start_gc_thread()
    with contextlib.closing(
        CanaryAnalyzer(settings, versions.contest, window, spans, labels=max_brier is not None)
    ) as analyzer:
        analysis = (
            _follow(analyzer, versions, margins, bake_seconds, as_json) if follow else _analyse(analyzer, versions, margins)
        )
    if not (follow and as_json):
        print_data(as_json, analysis.to_dict(), lambda: analysis_tables(analysis.to_dict()))
    if not as_json:
        err_console.print(verdict_line(analysis))
    if analysis.verdict.decision is not CanaryDecision.PROMOTE:
        raise typer.Exit(FINDING)


def _bake_seconds(bake: str | None, follow: bool) -> int:
    """Return the bake time in seconds, 0 without one. Raises BadParameter if it is invalid or given without `follow`."""
    if bake is None:
        return 0
    if not follow:
        raise typer.BadParameter("--bake needs --follow", param_hint="--bake")
    try:
        return seconds(bake)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--bake") from None


def _contestants(
    settings: Settings, window: TimeRange, given: Sequence[ContestVersion | None], follow: bool
) -> tuple[dict[Partition, Bounds], Contestants | None]:
    """Return the offset ranges to read, and the two versions to compare.

    If the records do not name two versions: wait for more records if `follow` is true, else return None for the versions.
    """
    reader = TopicReader(settings.kafka, f"{settings.name}.judge")
    while True:
        spans = answer_spans(reader, settings, window)
        versions = contestants.find_contestants(reader, settings, spans, *given)
        if versions is not None or not follow:
            return spans, versions
        time.sleep(POLL_SECONDS)


def _analyse(analyzer: CanaryAnalyzer, versions: Contestants, margins: Margins) -> AnalysisReport:
    """Analyse all records up to the end offsets of the analyzer, and return the report."""
    with err_console.status("analysing") as status:
        for left in analyzer.to_end():
            status.update(f"analysing: {left:,} offsets left")
    return analyzer.report(versions, _verdict(analyzer, margins))


def _follow(
    analyzer: CanaryAnalyzer, versions: Contestants, margins: Margins, bake_seconds: int, as_json: bool
) -> AnalysisReport:
    """Analyse new records every second and print the result, until the verdict is to promote or to roll back."""
    bake = BakeClock()
    with Live(console=err_console, transient=True, auto_refresh=False) as live:
        while True:
            pace = analyzer.follow(POLL_SECONDS)
            missing = analyzer.reasons().get(ERRORS, "")
            conditions = BakeConditions(cut_over=1, partitions=1, pair_age=pace.pair_age, behind=pace.behind, missing=missing)
            bake = bake.advance(time.time(), conditions)
            verdict = _verdict(analyzer, margins, *bake.obstacles(bake_seconds, conditions))
            analysis = analyzer.report(versions, verdict, pace.behind)
            if as_json:
                sys.stdout.buffer.write(printable_json(orjson.dumps(analysis.to_dict())) + b"\n")
                sys.stdout.flush()
            elif live.console.is_terminal:
                live.update(Group(analysis_tables(analysis.to_dict()), verdict_line(analysis)), refresh=True)
            if verdict.decision is not CanaryDecision.HOLD:
                return analysis


def _verdict(analyzer: CanaryAnalyzer, margins: Margins, *obstacles: str) -> CanaryVerdict:
    rules = margins.rules(decided=analyzer.paired_sums.decided)
    cells = analyzer.cells(time.monotonic())
    psi, _ = analyzer.sample.drift()
    return decide(rules, cells, obstacles=[*obstacles, *margins.obstacles(psi)], reasons=analyzer.reasons())


def verdict_line(analysis: AnalysisReport) -> Text:
    """Return the verdict and its reasons as one line."""
    verdict = analysis.verdict
    return Text.assemble((verdict.decision, STYLES[verdict.decision]), f": {'; '.join(verdict.reasons)}")
