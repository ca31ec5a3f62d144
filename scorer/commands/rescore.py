"""`scorer rescore`: write corrections of wrong score records. See scorer/rescore/job.py."""

import contextlib
import re
from typing import Annotated, Any

import typer
from rich.table import Table

from publisher.audit import cli_view
from publisher.errors import FINDING, REFUSED, Fatal
from publisher.runtime.command_line import Config, From, Json, Set, To, err_console, print_data, table, time_range
from publisher.runtime.interruption import report_progress
from scorer.backends.base import ModelRefused
from scorer.crash_isolation.trial_load import tried_loader
from scorer.features.required_log import require_log
from scorer.models.registry_access import pull_version
from scorer.models.servable import Servable, make
from scorer.rescore import job as jobs
from scorer.rescore.job import RescoreJob, RescoreSummary
from scorer.rescore.selection import USUAL, ScoreSelection
from scorer.settings import Settings, load

STATUSES = ("scored", "fallback", "expired")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
NAME = re.compile(r"[a-zA-Z0-9._-]{1,100}")


def rescore(
    path: Config,
    flags: Set = None,
    digest: Annotated[str | None, typer.Option(help="Select the scores of the version with this digest.")] = None,
    status: Annotated[
        list[str] | None, typer.Option(help="Select the scores with this status (scored, fallback, expired). Repeatable.")
    ] = None,
    start: From = None,
    end: To = None,
    version: Annotated[
        str | None,
        typer.Option(
            "--with", help="The version that scores the events again, a tag or a digest.", show_default="the channel's"
        ),
    ] = None,
    job: Annotated[
        str | None,
        typer.Option(
            help="The name of the job. If a job with this name exists, it continues.", show_default="derived from the selection"
        ),
    ] = None,
    rate: Annotated[float | None, typer.Option(help="The maximum number of scores per second.", min=0.001)] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what would be scored again; write nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Score the events of wrong scores again, and write each correction once to OUTPUT.corrections.

    --from and --to select by the scores' scored_ms. Exit code 1 if a selected score cannot be corrected.
    """
    settings = load(path, flags or []).settings
    selection = _selection(digest, status or [], start, end)
    name = job or selection.name()
    if not NAME.fullmatch(name):
        raise typer.BadParameter(
            f"{name!r} is not a valid name of a job; use letters, digits, '.', '_' and '-'", param_hint="--job"
        )
    if dry_run:
        package, resolution = pull_version(_with_version(settings, version))
        digest_of_version = resolution.digest if version else None
        with cli_view.progress() as progress:
            summary = jobs.preview(settings, RescoreJob(name, selection, digest_of_version), package.signature, progress)
        print_data(as_json, {"job": name, "dry_run": True, **summary.to_dict()}, lambda: as_table(summary, "to correct"))
        return
    servable = _load_version(settings, version)
    if servable.digest == selection.digest:
        hint = "promote another version first, or give one with --with"
        raise Fatal(
            f"{servable.label} computed the scores that are to be corrected; only another version can correct them",
            hint,
            REFUSED,
        )
    with contextlib.closing(servable.loaded.model):
        digest_of_version = servable.digest if version else None
        summary = RescoreSummary()

        def counts() -> dict[str, Any]:
            return {"job": name, "dry_run": False, "version": servable.label, **summary.to_dict()}

        with report_progress(as_json, counts, summary.progress) as interruption, cli_view.progress() as progress:
            jobs.rescore(
                settings, RescoreJob(name, selection, digest_of_version), servable, summary, interruption, rate, progress
            )
    print_data(as_json, counts(), lambda: as_table(summary, "corrected"))
    for line in summary.findings.lines():
        err_console.print(f"not corrected: {line}", markup=False)
    if summary.total.uncorrected or summary.total.unread:
        raise typer.Exit(FINDING)


def _selection(digest: str | None, statuses: list[str], start: str | None, end: str | None) -> ScoreSelection:
    """Return the selection of scores to correct. Raises BadParameter."""
    if digest is None and not statuses:
        raise typer.BadParameter("select the wrong scores with --digest, --status, or both")
    if digest is not None and not DIGEST.fullmatch(digest):
        raise typer.BadParameter(
            f"{digest!r} is not a digest, such as the field digest of a score: sha256:...", param_hint="--digest"
        )
    for name in statuses:
        if name not in STATUSES:
            raise typer.BadParameter(f"{name!r} is not one of {', '.join(STATUSES)}", param_hint="--status")
    return ScoreSelection(digest, tuple(sorted(set(statuses))) or USUAL, time_range(start, end))


def _with_version(settings: Settings, version: str | None) -> Settings:
    if version is None:
        return settings
    return settings.model_copy(update={"model": settings.model.model_copy(update={"tag": version})})


def _load_version(settings: Settings, version: str | None) -> Servable:
    """Load the version that scores events again, with the same checks as a scorer. Configure it to write corrections.

    Raises:
        RegistryError: The version cannot be pulled.
        Fatal: The version is rejected, or it has joined fields and the feature log does not contain its inputs.
    """
    package, resolution = pull_version(_with_version(settings, version))
    if package.signature is not None:
        require_log(settings.features, [package.signature])
    try:
        return make(package, resolution, tried_loader(settings), jobs.correcting_settings(settings))
    except ModelRefused as error:
        raise Fatal(
            f"{package.name}:{resolution.version} is rejected: {error}", "give another version with --with", REFUSED
        ) from error


def as_table(summary: RescoreSummary, done: str) -> Table:
    """Return a table of the counts of this run and of the whole job. `done` is the label of the row that counts corrections."""
    run = summary.run
    total = summary.total
    rows = [
        (done, run.corrected, total.corrected),
        ("event no longer retained", run.not_retained, total.not_retained),
        ("not in the feature log", run.not_logged, total.not_logged),
        *((f"dead-lettered: {reason}", run.refused.get(reason, 0), n) for reason, n in sorted(total.refused.items())),
        ("unfit", run.unfit, total.unfit),
        ("deleted before they were read", run.unread, total.unread),
        ("not selected", run.others, total.others),
    ]
    return table(["scores", "this run", "whole job"], [(name, f"{a:,}", f"{b:,}") for name, a, b in rows])
