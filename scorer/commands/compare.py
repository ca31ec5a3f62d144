"""`scorer compare`: score retained input events with champion and candidate and compare the scores.

The command joins no consumer group and writes nothing.
"""

import contextlib
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from publisher.errors import FINDING
from publisher.runtime import time_range as times
from publisher.runtime.command_line import Config, From, Json, Last, Set, To, err_console, parse_share, print_data, time_range
from publisher.runtime.progress_bars import progress_bars
from scorer.crash_isolation.open_version import find_package, open_version
from scorer.evaluation import compare_versions
from scorer.evaluation.assessment import FIGURES, Assessment
from scorer.evaluation.comparison_report import ComparisonReport, Limits, build_report, differences
from scorer.evaluation.quality_report import FIGURE_TITLES, format_figure
from scorer.evaluation.score_differences import Differences
from scorer.features.required_log import require_log
from scorer.models.loaded_model import LoadedModel
from scorer.settings import Settings, load

NEWEST = 100_000  # the default number of events to compare
USUAL = Limits()
MAX_TEXT = 60  # characters of a score, an event or an error that a table shows


def compare(
    path: Config,
    candidate: Annotated[str, typer.Argument(help="A tag or digest in model.source, or a package folder.", show_default=False)],
    flags: Set = None,
    last: Last = None,
    start: From = None,
    end: To = None,
    events: Annotated[
        int | None,
        typer.Option(
            help=f"Compare only this number of newest events. Default: {NEWEST:,} without a time range, else all.", min=1
        ),
    ] = None,
    max_errors: Annotated[
        float,
        typer.Option(help="The largest allowed share of events that only the candidate dead-letters.", parser=parse_share),
    ] = USUAL.errors,
    max_flips: Annotated[
        float, typer.Option(help="The largest allowed share of events on which the decisions differ.", parser=parse_share)
    ] = USUAL.flips,
    max_psi: Annotated[
        float, typer.Option(help="The largest allowed population stability index of the scores.", min=0.0)
    ] = USUAL.psi,
    max_cost: Annotated[
        float | None,
        typer.Option(help="The longest allowed time per event, as a multiple of the champion's.", min=0.0, show_default="any"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Score retained events with the champion and a candidate, and compare the scores. Exit code 1 if a limit is exceeded."""
    settings = load(path, flags or []).settings
    window = time_range(start, end, last)
    newest = events or (NEWEST if window == times.ALWAYS else None)
    with contextlib.ExitStack() as opened:
        champion_name, champion = opened.enter_context(_load_version(settings, None))
        name, model = opened.enter_context(_load_version(settings, candidate))
        show = opened.enter_context(progress_bars())
        compared = compare_versions.compare(
            settings, champion, model, window, newest, lambda done, total: show("comparing", done, total)
        )
    report = build_report(champion_name, name, compared, Limits(max_errors, max_flips, max_psi, max_cost))
    print_data(as_json, report.to_dict(), lambda: as_tables(report))
    if (logged := compared.logged) is not None:
        err_console.print(
            f"read from the feature log {logged.topic}: {logged.records:,} records; the input topics have "
            f"{logged.input_offsets:,} offsets in this range",
            markup=False,
        )
    if not as_json:
        err_console.print(_verdict(report))
    if not report.passed:
        raise typer.Exit(FINDING)


@contextlib.contextmanager
def _load_version(settings: Settings, name_or_folder: str | None) -> Iterator[tuple[str, LoadedModel]]:
    """Load a version with the same checks as a scorer. Yield the version's name and its loaded model.

    `name_or_folder` is as in `find_package`; None for the champion.

    Raises:
        RegistryError: The version cannot be pulled.
        Fatal: The version is rejected, or it has joined fields and the feature log does not contain its inputs.
        BackendUnavailable: A model server is unavailable.
    """
    named = find_package(settings, name_or_folder)
    if named.package.signature is not None:
        require_log(settings.features, [named.package.signature])
    with open_version(settings, named) as loaded:
        yield named.name, loaded


def as_tables(report: ComparisonReport) -> Group:
    """Return tables of the counts, the checked rules, the changed decisions, the new dead letters and the largest differences.

    A new dead letter is an event that only the candidate dead-letters. If a topic of labels is configured, a table of the
    quality figures is included.
    """
    scored = report.compared.differences
    parts: list[RenderableType] = [_counts(report), _rules(report)]
    if scored.flipped():
        parts.append(_flips(scored))
    if scored.newly:
        parts.append(_new_dead_letters(scored))
    if report.compared.labelled is not None:
        parts += _labelled(report.compared.labelled)
    if scored.worst:
        parts.append(_largest_differences(scored))
    return Group(*parts)


def _table(title: str, *columns: str) -> Table:
    table = Table(*columns, title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False)
    for column in table.columns[1:]:
        column.overflow = "fold"
    return table


def _counts(report: ComparisonReport) -> Table:
    scored = report.compared.differences
    cost = report.cost
    table = _table(f"{scored.events:,} events, {scored.both:,} scored by both", "", report.champion, report.candidate)
    table.add_row("dead letters", *(f"{scored.dead[side]:,}" for side in ("champion", "candidate")))
    table.add_row("us an event", *(f"{cost[side]:.2f}" for side in ("champion", "candidate")))
    return table


def _rules(report: ComparisonReport) -> Table:
    table = _table("", "rule", "found", "limit")
    for rule in report.rules:
        style = "bold red" if rule.beyond else ""
        table.add_row(rule.name, f"{rule.value:.4g}", f"{rule.limit:.4g}", style=style)
    _, ks = report.compared.differences.drift()
    if ks is not None:
        table.add_row("ks", f"{ks:.4g}", "any")
    if report.rules and report.rules[-1].name != "cost":
        table.add_row("cost", f"{report.cost['candidate'] / report.cost['champion']:.4g}", "any")
    return table


def _labelled(assessment: Assessment) -> list[RenderableType]:
    """Return a table that compares the quality of both versions on labelled events, and lines that count unused labels."""
    deltas = differences(assessment)
    table = _table(f"by the labels of {assessment.labelled:,} events", "", "champion", "candidate", "difference")
    for name, title in zip(FIGURES, FIGURE_TITLES, strict=True):
        if name in deltas:
            table.add_row(title, *(format_figure(getattr(each, name)) for each in assessment.versions), f"{deltas[name]:+.4g}")
    counts = f"labels of other events: {assessment.unmatched:,}; unusable labels: {assessment.refused.counts.total():,}"
    return [table, *map(Text, (counts, *assessment.refused.lines()))]


def _flips(scored: Differences) -> Table:
    names = sorted({name for pair in scored.flips for name in pair}, key=str)
    table = _table("decisions: the champion's by row, the candidate's by column", "", *map(str, names))
    for before in names:
        table.add_row(str(before), *(f"{scored.flips[before, after]:,}" for after in names))
    return table


def _new_dead_letters(scored: Differences) -> Table:
    table = _table("dead letters of the candidate alone", "reason", "events", "first", "")
    for reason, count in scored.newly.most_common():
        for number, (event, error) in enumerate(scored.examples[reason]):
            head = (str(reason), f"{count:,}") if number == 0 else ("", "")
            table.add_row(*head, _position(event.partition, event.offset), _short(error.encode()))
    return table


def _largest_differences(scored: Differences) -> Table:
    table = _table(f"largest of {scored.changed:,} differences", "", "champion", "candidate", "at", "event")
    for each in scored.largest():
        event = each.event
        scores = _short(each.champion), _short(each.candidate)
        table.add_row(f"{each.size:.4g}", *scores, _position(event.partition, event.offset), _short(event.value or b"null"))
    return table


def _position(partition: tuple[str, int], offset: int) -> str:
    return f"{partition[0]}[{partition[1]}]@{offset}"


def _short(value: bytes) -> Text:
    text = value[: 4 * MAX_TEXT].decode("utf-8", "backslashreplace")
    return Text(text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 3] + "...")


def _verdict(report: ComparisonReport) -> Text:
    if not report.rules:
        return Text.assemble(("nothing compared", "red"), ": no event was scored by both")
    beyond = [f"{rule.name} {rule.value:.4g} (limit {rule.limit:.4g})" for rule in report.rules if rule.beyond]
    return Text.assemble(("beyond limits", "red"), f": {', '.join(beyond)}") if beyond else Text("within limits", "green")
