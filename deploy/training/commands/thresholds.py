"""The command `thresholds`: precision, recall and cost of a version by threshold, on the hold-out rows of a run."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import typer
import yaml
from rich.console import Group, RenderableType

from model_registry import atomic_files
from model_registry.channels import channel
from publisher.errors import REFUSED, USAGE, Fatal
from publisher.runtime.command_line import Config, Json, Set, print_data, table
from training.commands.run import progress
from training.pipeline.evaluate_steps import hold_out_answers
from training.pipeline.recorded_rows import open_rows
from training.pipeline.step_results import ChampionState
from training.runs_topic.read_history import find_run, read_history
from training.settings import load
from training.snapshot.target import Target
from training.validation_gate import threshold_plot
from training.validation_gate import thresholds as figures_by_threshold
from training.validation_gate.thresholds import ThresholdFigures, ThresholdRow

MAX_COST_BYTES = 1 << 20
Version = Annotated[
    str | None,
    typer.Argument(metavar="VERSION", help="A version, a channel or a digest.", show_default="the channel's champion"),
]
Name = Annotated[
    str | None,
    typer.Option("--run", help="The run whose held-out rows are scored: its id, version or key.", show_default="the newest"),
]
ClassName = Annotated[
    str | None,
    typer.Option(
        "--class",
        metavar="NAME",
        help="The class whose score is compared with the thresholds.",
        show_default="the second of two classes",
    ),
]
CostMatrix = Annotated[
    str | None,
    typer.Option(
        "--cost-matrix",
        metavar="FILE|JSON",
        help="Costs of a row by label (row) and decision (column): a YAML or JSON file, or JSON such as '[[0, 1], [5, 0]]'.",
    ),
]
Plot = Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Write precision, recall and cost as SVG.")]


def thresholds(
    path: Config,
    version: Version = None,
    name: Name = None,
    class_name: ClassName = None,
    costs: CostMatrix = None,
    plot: Plot = None,
    flags: Set = None,
    as_json: Json = False,
) -> None:
    """Show precision, recall and cost of a version by threshold, on rows that it was not trained on."""
    training, settings = load(path, flags or [])
    with progress() as shown:
        recorded = find_run(read_history(settings), name, settings.runs_topic, "join")
        run = open_rows(training, settings, recorded, shown)
        resolved = channel.resolve(run.store, version or run.channel)
        rows, answers = hold_out_answers(run, ChampionState(resolved.version, resolved.digest, resolved.revision))
    target = rows.target
    outcomes = rows.outcomes
    at = _class_index(target, class_name)
    document: dict[str, Any] = {"version": resolved.version, "digest": resolved.digest}
    if at is None:
        if costs is None:
            hint = f"name one with --class, or give costs with --cost-matrix; the classes: {', '.join(target.classes)}"
            raise Fatal(f"a threshold decides for one class, but the labels have {len(target.classes)} classes", hint, USAGE)
        matrix = _cost_matrix(costs, target.classes)
        by_decision = figures_by_threshold.decision_costs(answers.scores, answers.decisions, outcomes, matrix)
        document["decisions"] = msgspec.to_builtins(by_decision)
        print_data(as_json, document, lambda: table(("decided", "mean cost"), _decision_rows(document["decisions"])))
        return
    positive = outcomes == at
    if not positive.any():
        raise Fatal(f"no held-out row has the class {target.classes[at]!r}", "name another class, or another run", REFUSED)
    scores = answers.scores if answers.scores.ndim == 1 else answers.scores[:, at]
    if target.kind == "binary" and at == 0:
        scores = 1 - scores
    other = target.classes[1 - at] if target.kind == "binary" else f"not {target.classes[at]}"
    matrix_of_two = None if costs is None else _cost_matrix(costs, (other, target.classes[at]))
    figures = figures_by_threshold.by_threshold(target.classes[at], scores, np.asarray(positive), matrix_of_two)
    if plot is not None:
        with atomic_files.report_os_errors(f"the plot {plot}"):
            atomic_files.replace(plot, [threshold_plot.plot(figures).encode()])
    document |= msgspec.to_builtins(figures)
    print_data(as_json, document, lambda: _shown(figures))


def _class_index(target: Target, name: str | None) -> int | None:
    """Return the index of the class that the threshold decides for; by default the second of two classes.

    Return None if there are more than two classes and `name` is None. Raises Fatal (exit code 2) if there is no such class, or
    if the target is a regression.
    """
    if target.kind == "regression":
        raise Fatal("the labels are numbers, but thresholds decide between classes", "compare versions with `compare`", USAGE)
    if name is None:
        return 1 if target.kind == "binary" else None
    if name not in target.classes:
        raise Fatal(f"--class: there is no class {name!r:.100}", f"the classes: {', '.join(target.classes)}", USAGE)
    return target.classes.index(name)


def _cost_matrix(text: str, classes: tuple[str, ...]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Read the option `--cost-matrix`. Raises Fatal (exit code 2) if it is not a matrix of costs of these classes."""
    hint = "for example '[[0, 1], [5, 0]]': a row for each label, a column for each decision"
    source = "--cost-matrix"
    if not text.lstrip().startswith(("[", "{")):
        source = f"--cost-matrix {text}"
        try:
            with Path(text).open("rb") as file:
                text = file.read(MAX_COST_BYTES).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise Fatal(f"{source} cannot be read: {error}", hint, USAGE) from None
    try:
        return figures_by_threshold.cost_matrix(yaml.safe_load(text), classes)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise Fatal(f"{source}: {' '.join(str(error).split())}", hint, USAGE) from None


def _decision_rows(costs: dict[str, float | None]) -> list[tuple[str, str]]:
    names = {"decided": "by the version", "cheapest": "by the lowest expected cost"}
    return [(title, _figure(costs[name])) for name, title in names.items()]


def _shown(figures: ThresholdFigures) -> RenderableType:
    columns = ["threshold", "decided", "precision", "recall", *(["cost"] if figures.cheapest else [])]
    rows = [_cells(row) for row in figures.thresholds]
    if figures.cheapest:
        rows.append((f"cheapest: {figures.cheapest.threshold:.4f}", *_cells(figures.cheapest)[1:]))
    areas = f"AUC {_figure(figures.auc)}, PR-AUC {_figure(figures.pr_auc)}"
    head = f"{figures.class_}: {figures.positives:,} of {figures.rows:,} rows, {areas}"
    return Group(head, table(tuple(columns), [row[: len(columns)] for row in rows]))


def _cells(row: ThresholdRow) -> tuple[str, ...]:
    return f"{row.threshold:.4f}", f"{row.decided:.1%}", _figure(row.precision), _figure(row.recall), _figure(row.cost)


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
