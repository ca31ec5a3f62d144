"""The command `scorer audit`: the count for one scorer, or for one that has run in several regions."""

import json as json_module
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from publisher.time_window import HELP as TIME_HELP

ANSWER_SECONDS = 10.0  # that a broker may take to answer
talk = Console(stderr=True, highlight=False, soft_wrap=True)


def audit(
    config: Annotated[Path, typer.Argument(help="The configuration, a YAML file.", show_default=False)],
    regions: Annotated[
        list[Path] | None, typer.Argument(help="Configurations of this scorer in other regions: count over all of them.")
    ] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: --set name=other")] = None,
    start: Annotated[str | None, typer.Option("--from", help=f"From this time on: {TIME_HELP}.")] = None,
    end: Annotated[str | None, typer.Option("--to", help=f"Before this time: {TIME_HELP}.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
) -> None:
    """Count what was lost, doubled, invented or reordered between inputs and scores. Exit code 1 where anything was."""
    if regions and (settings or start or end):
        raise typer.BadParameter("--set, --from and --to are of one region; leave them out")
    clean = _over_regions([config, *regions], json) if regions else _here(config, settings or [], (start, end), json)
    if not clean:
        raise typer.Exit(1)


def _here(config: Path, flags: list[str], times: tuple[str | None, str | None], json: bool) -> bool:
    from publisher import audit_view
    from publisher.time_window import TimeWindow
    from scorer.audit import plan
    from scorer.settings import load

    try:
        window = TimeWindow.of(*times)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    loaded = load(config, flags).settings
    report = audit_view.audited(loaded.kafka, plan(loaded, window), ANSWER_SECONDS, talk)
    _print(report.to_dict() if json else audit_view.table(report))
    talk.print(audit_view.verdict(report))
    return report.clean


def _over_regions(configs: list[Path], json: bool) -> bool:
    from publisher import regions_audit_topics, regions_audit_view
    from scorer.audit import sides
    from scorer.settings import load

    found = sides([load(config).settings for config in configs])
    if len({side.region for side in found}) < len(found):
        raise typer.BadParameter("two of the configurations have the same region")
    report = regions_audit_topics.audit(found, ANSWER_SECONDS, lambda what: talk.print(what, markup=False))
    _print(report.to_dict() if json else regions_audit_view.table(report))
    talk.print("[green]clean[/]" if report.clean else "[red]not clean[/]")
    return report.clean


def _print(value: Any) -> None:
    if isinstance(value, dict):
        sys.stdout.write(json_module.dumps(value) + "\n")
    else:
        Console().print(value)
