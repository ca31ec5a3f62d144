"""The command `scorer audit`: the count for one scorer, or for one that has run in several regions."""

from pathlib import Path
from typing import Annotated

import typer

from publisher.process.command_line import talk, time_window
from publisher.process.time_window import HELP as TIME_HELP
from scorer.commands.printing import Config, Json, Set, print_data

ANSWER_SECONDS = 10.0  # that a broker may take to answer


def audit(
    config: Config,
    regions: Annotated[
        list[Path] | None, typer.Argument(help="Configurations of this scorer in other regions: count over all of them.")
    ] = None,
    settings: Set = None,
    start: Annotated[str | None, typer.Option("--from", help=f"From this time on: {TIME_HELP}.")] = None,
    end: Annotated[str | None, typer.Option("--to", help=f"Before this time: {TIME_HELP}.")] = None,
    json: Json = False,
) -> None:
    """Count what was lost, doubled, invented or reordered between inputs and scores. Exit code 1 where anything was."""
    if regions and (settings or start or end):
        raise typer.BadParameter("--set, --from and --to are of one region; leave them out")
    clean = _over_regions([config, *regions], json) if regions else _here(config, settings or [], (start, end), json)
    if not clean:
        raise typer.Exit(1)


def _here(config: Path, flags: list[str], times: tuple[str | None, str | None], json: bool) -> bool:
    from publisher.audit import view as audit_view
    from scorer.commands.audit_report import plan
    from scorer.settings import load

    window, loaded = time_window(*times), load(config, flags).settings
    report = audit_view.audited(loaded.kafka, plan(loaded, window), ANSWER_SECONDS, talk)
    print_data(json, report.to_dict(), lambda: audit_view.table(report))
    talk.print(audit_view.verdict(report))
    return report.clean


def _over_regions(configs: list[Path], json: bool) -> bool:
    from publisher.audit import regions_topics as regions_audit_topics
    from publisher.audit import regions_view as regions_audit_view
    from scorer.commands.audit_report import sides
    from scorer.settings import load

    found = sides([load(config).settings for config in configs])
    if len({side.region for side in found}) < len(found):
        raise typer.BadParameter("two of the configurations have the same region")
    report = regions_audit_topics.audit(found, ANSWER_SECONDS, lambda what: talk.print(what, markup=False))
    print_data(json, report.to_dict(), lambda: regions_audit_view.table(report))
    talk.print("[green]clean[/]" if report.clean else "[red]not clean[/]")
    return report.clean
