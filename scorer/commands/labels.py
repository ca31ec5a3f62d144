"""`scorer labels`: measure the quality of each version by joining scores with labels.

The command joins no consumer group and writes to no topic.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType

from model_registry.oci.digests import short
from publisher.errors import FINDING, USAGE, Fatal
from publisher.runtime.command_line import Config, From, Json, Last, Set, To, err_console, print_data, table, time_range
from publisher.runtime.progress_bars import progress_bars
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
    svg: Annotated[
        Path | None, typer.Option("--svg", help="Write the confusion matrices and the calibration plot to this SVG file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Join scores with labels: confusion matrix, AUC, calibration and Brier score of each version.

    Exit code 1 if no score has a label.
    """
    settings = load(path, flags or []).settings
    window = time_range(start, end, last)
    with progress_bars() as show:
        assessment, spans = join_labels.measure(settings, window, show)
    if svg is not None:
        _write(svg, calibration_plot.plot(assessment))
    read = [{"topic": t, "partition": p, "from": low, "to": high} for (t, p), (low, high) in sorted(spans.items())]
    print_data(as_json, {"read": read, **quality_report.to_dict(assessment)}, lambda: as_tables(assessment))
    if not assessment.labelled:
        err_console.print("no score in this time range has a usable label")
        raise typer.Exit(FINDING)


def _write(path: Path, text: str) -> None:
    """Write a text to a file. Raises Fatal with exit code 2 if that fails."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Fatal(f"{path} cannot be written: {error.strerror}", "give another path with --svg", USAGE) from error


def as_tables(assessment: Assessment) -> Group:
    """Return tables of the counts, of each version's quality figures, and of the confusion matrices."""
    refused = [
        (reason, f"{count:,}", f"first: {assessment.refused.first(reason)}") for reason, count in assessment.refused.ordered()
    ]
    counts = [
        ("scores", f"{assessment.answered:,}", f"{assessment.labelled:,} have a label"),
        ("labels of other events", f"{assessment.unmatched:,}", ""),
        ("labels replaced by newer ones", f"{assessment.replaced:,}", ""),
        ("labels withdrawn", f"{assessment.withdrawn:,}", ""),
        *([("unreadable scores, skipped", f"{assessment.unreadable:,}", "")] if assessment.unreadable else []),
        *refused,
        *((f"scores of {short(digest)}", f"{count:,}", UNKNOWN) for digest, count in sorted(assessment.undecided.items())),
    ]
    parts: list[RenderableType] = [table(("", "", ""), counts)]
    if assessment.versions:
        parts.append(metrics_table(assessment.versions))
    parts += [_matrix(each) for each in assessment.versions if each.matrix]
    return Group(*parts)


def metrics_table(versions: Sequence[Quality]) -> RenderableType:
    """Return a table with a row of quality figures for each version; a column without any value is left out."""
    used = [k for k, name in enumerate(FIGURES) if any(getattr(each, name) is not None for each in versions)]
    columns = ("version", "labels", *(FIGURE_TITLES[k] for k in used))
    rows = [
        (version_name(each), f"{each.labels:,}", *(format_figure(getattr(each, FIGURES[k])) for k in used)) for each in versions
    ]
    return table(columns, rows)


def version_name(each: Quality) -> str:
    """Return the version with its short digest."""
    version, _, digest = each.version.partition("@")
    return f"{version} {short(digest)}" if digest else version


def _matrix(each: Quality) -> RenderableType:
    matrix = table((f"{version_name(each)}: label by row", *each.columns), [])
    for name, counts in zip(each.rows, each.matrix, strict=True):
        matrix.add_row(name, *(f"{count:,}" for count in counts))
    return matrix
