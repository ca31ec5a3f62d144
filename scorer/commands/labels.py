"""`scorer labels`: how good each version's answers were, by what came true since. It joins no group and writes to no topic."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType

from model_registry.commands.output import short
from publisher.errors import FINDING, Fatal
from publisher.runtime.command_line import Config, From, Json, Last, Set, To, print_data, table, talk, time_window
from scorer.evaluation import calibration_plot, join_labels, quality_report
from scorer.evaluation.assessment import FIGURES, Assessment, Quality
from scorer.evaluation.decision_output import UNKNOWN
from scorer.evaluation.quality_report import FIGURE_TITLES, format_figure
from scorer.settings import load


def labels(
    path: Config,
    flags: Set = None,
    last: Last = None,
    start: From = None,
    end: To = None,
    svg: Annotated[Path | None, typer.Option("--svg", help="Draw the matrices and the calibration into this file.")] = None,
    as_json: Json = False,
) -> None:
    """Join scores with what came true since, however late: confusion matrix, AUC, calibration and Brier score by version.
    Exit code 1 where no score has a label."""
    settings = load(path, flags or []).settings
    found, spans = join_labels.measure(settings, time_window(start, end, last))
    if svg is not None:
        _write(svg, calibration_plot.draw(found))
    read = [{"topic": t, "partition": p, "from": low, "to": high} for (t, p), (low, high) in sorted(spans.items())]
    print_data(as_json, {"read": read, **quality_report.to_dict(found)}, lambda: shown(found))
    if not found.labelled:
        talk.print("no score of this time has a label that counts")
        raise typer.Exit(FINDING)


def _write(path: Path, text: str) -> None:
    """Raises Fatal (2)."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Fatal(f"{path} cannot be written: {error.strerror}", "give another file to --svg", 2) from error


def shown(found: Assessment) -> Group:
    """Counts, a row of figures each version, and their matrices."""
    refused = [(reason, f"{count:,}", f"first: {found.refused.first(reason)}") for reason, count in found.refused.ordered()]
    counts = [
        ("scores", f"{found.answered:,}", f"{found.labelled:,} have a label"),
        ("labels of other events", f"{found.unmatched:,}", ""),
        ("labels replaced by a newer one", f"{found.replaced:,}", ""),
        ("labels withdrawn", f"{found.withdrawn:,}", ""),
        *([("unreadable scores, skipped", f"{found.unreadable:,}", "")] if found.unreadable else []),
        *refused,
        *((f"scores of {short(digest)}", f"{count:,}", UNKNOWN) for digest, count in sorted(found.undecided.items())),
    ]
    parts: list[RenderableType] = [table(("", "", ""), counts)]
    if found.versions:
        parts.append(figures(found.versions))
    parts += [_matrix(each) for each in found.versions if each.matrix]
    return Group(*parts)


def figures(versions: Sequence[Quality]) -> RenderableType:
    """A row each version; columns that none has a figure for are left out."""
    used = [k for k, name in enumerate(FIGURES) if any(getattr(each, name) is not None for each in versions)]
    columns = ("version", "labels", *(FIGURE_TITLES[k] for k in used))
    rows = [(named(each), f"{each.labels:,}", *(format_figure(getattr(each, FIGURES[k])) for k in used)) for each in versions]
    return table(columns, rows)


def named(each: Quality) -> str:
    version, _, digest = each.version.partition("@")
    return f"{version} {short(digest)}" if digest else version


def _matrix(each: Quality) -> RenderableType:
    made = table((f"{named(each)}: label by row", *each.columns), [])
    for name, counts in zip(each.rows, each.matrix, strict=True):
        made.add_row(name, *(f"{count:,}" for count in counts))
    return made
