"""`scorer judge`: whether a candidate may be promoted, by events that two versions answered. It joins no group and writes
nothing."""

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

from model_registry.untrusted_input.text import printable_json
from publisher.errors import FINDING
from publisher.kafka.partitions import Partition
from publisher.kafka.reader import TopicReader
from publisher.kafka.topics import Bounds
from publisher.runtime.command_line import Config, From, Json, Last, Set, To, print_data, print_json, share, talk, time_window
from publisher.runtime.malloc_tuning import few_arenas, keep_tidy
from publisher.runtime.time_range import TimeWindow, seconds
from scorer.evaluation.join_labels import labels_topic
from scorer.rollout.canary_analysis import contestants
from scorer.rollout.canary_analysis.analysis_report import AnalysisReport, Margins
from scorer.rollout.canary_analysis.analysis_tables import analysis_tables
from scorer.rollout.canary_analysis.analyzer import CanaryAnalyzer, answer_spans
from scorer.rollout.canary_analysis.bake_time import BakeClock, BakeConditions
from scorer.rollout.canary_analysis.contestants import Contestants, ContestVersion
from scorer.rollout.canary_analysis.verdict import CanaryDecision, CanaryVerdict, decide
from scorer.settings import Settings, load

USUAL = Margins()
LAST = "1h"
LOOK_SECONDS = 1.0
NOBODY = "no records of this time name a champion and a candidate"
STYLES = {CanaryDecision.PROMOTE: "green", CanaryDecision.ROLL_BACK: "bold red", CanaryDecision.HOLD: "yellow"}


def judge(
    path: Config,
    flags: Set = None,
    last: Last = None,
    start: From = None,
    end: To = None,
    champion: Annotated[
        str | None, typer.Option(help="A version (a tag or a digest).", show_default="of the newest scores")
    ] = None,
    candidate: Annotated[
        str | None, typer.Option(help="A version (a tag or a digest).", show_default="the shadow's newest, or the canary")
    ] = None,
    max_errors: Annotated[
        float, typer.Option(help="Share of events that the candidate fails, less the champion's.", parser=share)
    ] = USUAL.errors,
    max_flips: Annotated[float, typer.Option(help="Share of events decided otherwise.", parser=share)] = USUAL.flips,
    max_psi: Annotated[float, typer.Option(help="Population stability index of the scores.", min=0.0)] = USUAL.psi,
    max_brier: Annotated[
        float | None, typer.Option(help="Squared error by labels, less the champion's.", min=0.0, show_default="not judged")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Look each second, until there is a verdict.")] = False,
    bake: Annotated[str | None, typer.Option(help="With --follow: watch it so long (15m) before it passes.")] = None,
    as_json: Json = False,
) -> None:
    """Judge a candidate by the events that it and the champion both answered, the newest hour where no time is given: promote,
    roll back, or hold, and why. Writes nothing. Exit code 0 where it may be promoted, else 1."""
    if follow and end is not None:
        raise typer.BadParameter("--follow has no end; leave --to out", param_hint="--to")
    bake_seconds = _baking(bake, follow)
    few_arenas()
    settings, margins = load(path, flags or []).settings, Margins(max_errors, max_flips, max_psi, max_brier)
    if max_brier is not None:
        labels_topic(settings)
    window = time_window(start, end, last if last or start or end else LAST)
    given = [None if wanted is None else contestants.find_version(settings, wanted) for wanted in (champion, candidate)]
    stretch, rivals = _begun(settings, window, given, follow)
    if rivals is None:
        if as_json:
            print_json({"verdict": CanaryDecision.HOLD, "why": [NOBODY], "rules": []})
        talk.print(Text.assemble(("hold", "yellow"), f": {NOBODY}"))
        raise typer.Exit(FINDING)
    keep_tidy()
    with contextlib.closing(CanaryAnalyzer(settings, rivals.contest, window, stretch, labels=max_brier is not None)) as watch:
        found = _followed(watch, rivals, margins, bake_seconds, as_json) if follow else _judged(watch, rivals, margins)
    if not (follow and as_json):
        print_data(as_json, found.to_dict(), lambda: analysis_tables(found.to_dict()))
    if not as_json:
        talk.print(said(found))
    if found.verdict.decision is not CanaryDecision.PROMOTE:
        raise typer.Exit(FINDING)


def _baking(bake: str | None, follow: bool) -> int:
    """Seconds. Raises BadParameter."""
    if bake is None:
        return 0
    if not follow:
        raise typer.BadParameter("its clock runs only with --follow", param_hint="--bake")
    try:
        return seconds(bake)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--bake") from None


def _begun(
    settings: Settings, window: TimeWindow, given: Sequence[ContestVersion | None], follow: bool
) -> tuple[dict[Partition, Bounds], Contestants | None]:
    """What is to be read, and the versions that it names; with `follow` as soon as it names two."""
    bus = TopicReader(settings.kafka, f"{settings.name}.judge")
    while True:
        stretch = answer_spans(bus, settings, window)
        rivals = contestants.find_contestants(bus, settings, stretch, *given)
        if rivals is not None or not follow:
            return stretch, rivals
        time.sleep(LOOK_SECONDS)


def _judged(watch: CanaryAnalyzer, rivals: Contestants, margins: Margins) -> AnalysisReport:
    """By everything that is there."""
    with talk.status("judging") as status:
        for left in watch.to_end():
            status.update(f"judging: {left:,} offsets left")
    return watch.judged(rivals, _verdict(watch, margins))


def _followed(watch: CanaryAnalyzer, rivals: Contestants, margins: Margins, bake_seconds: int, as_json: bool) -> AnalysisReport:
    """Look each second, and tell it, until there is a verdict."""
    bake = BakeClock()
    with Live(console=talk, transient=True, auto_refresh=False) as live:
        while True:
            pace = watch.follow(LOOK_SECONDS)
            sight = BakeConditions(cut_over=1, partitions=1, pair_age=pace.pair_age, behind=pace.behind)
            bake = bake.looked(time.time(), sight)
            verdict = _verdict(watch, margins, *bake.obstacles(bake_seconds, sight))
            found = watch.judged(rivals, verdict, pace.behind)
            if as_json:
                sys.stdout.buffer.write(printable_json(orjson.dumps(found.to_dict())) + b"\n")
                sys.stdout.flush()
            elif live.console.is_terminal:
                live.update(Group(analysis_tables(found.to_dict()), said(found)), refresh=True)
            if verdict.decision is not CanaryDecision.HOLD:
                return found


def _verdict(watch: CanaryAnalyzer, margins: Margins, *obstacles: str) -> CanaryVerdict:
    rules = margins.rules(decided=watch.tally.decided)
    cells = watch.cells(time.monotonic())
    return decide(rules, cells, obstacles=[*obstacles, *margins.obstacles(watch.sample)], reasons=watch.reasons())


def said(found: AnalysisReport) -> Text:
    """The verdict, and why."""
    verdict = found.verdict
    return Text.assemble((verdict.decision, STYLES[verdict.decision]), f": {'; '.join(verdict.why)}")
