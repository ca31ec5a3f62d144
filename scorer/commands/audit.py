"""`scorer audit`: compare a scorer's inputs with its outputs, in one region or over several."""

from pathlib import Path
from typing import Annotated

import typer

from publisher.audit import cli_view, region_audit_io, scorer_audit
from publisher.audit.region_audit_io import AuditedRegion
from publisher.runtime.command_line import Config, From, Json, Set, To, time_range
from scorer.observability.audit_plan import audit_plan
from scorer.settings import load


def audit(
    path: Config,
    regions: Annotated[
        list[Path] | None,
        typer.Argument(help="Configurations of the same scorer in other regions, to audit all regions together."),
    ] = None,
    flags: Set = None,
    start: From = None,
    end: To = None,
    as_json: Json = False,
) -> None:
    """Count lost, duplicated, invented and reordered scores. Exit code 1 if there are any.

    publisher/docs/audit.md describes each count.
    """
    if regions and (flags or start or end):
        raise typer.BadParameter("--set, --from and --to work for one region only; remove them")
    window = time_range(start, end)
    scorers = [load(one, flags or []).settings for one in (path, *(regions or ()))]
    if len({settings.region for settings in scorers}) < len(scorers):
        raise typer.BadParameter("two of the configurations have the same region; give one configuration for each region")
    with cli_view.progress() as progress:
        report = (
            region_audit_io.audit([AuditedRegion(each.region, each.kafka, audit_plan(each)) for each in scorers], progress)
            if regions
            else scorer_audit.audit(scorers[0].kafka, audit_plan(scorers[0], window), progress)
        )
    cli_view.show(report, as_json)
