"""The model card: README.md of the package."""

import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass

from training.recipes import Params

LIBRARIES = {"trees": ("lightgbm", "onnx", "onnxruntime"), "network": ("torch", "onnx", "onnxruntime")}
OWN_LIBRARIES = ("onnxruntime",)


@dataclass(frozen=True, slots=True)
class Card:
    """The content of a model card.

    Attributes:
        rows: The number of events in training, validation and hold-out.
        metrics: The value of each metric by name, such as "AUC (validation)".
        facts: Further rows of the card's table, such as the run and the dataset.
    """

    title: str
    recipe: str
    parameters: Params
    seed: int
    rows: Mapping[str, int]
    metrics: Mapping[str, float]
    facts: Mapping[str, str]


def text(card: Card, parity: float | None, size: int) -> str:
    """Render a model card as Markdown. The same card gives the same text under the same library versions.

    Args:
        card: The content of the card.
        parity: The largest difference between the scores of the ONNX model and of the trained model; None if
            they are not compared, as for a recipe that is a user's command.
        size: The size of model.onnx in bytes.
    """
    libraries = LIBRARIES.get(card.recipe, OWN_LIBRARIES)
    rows = [
        *card.facts.items(),
        ("Recipe", card.recipe),
        *((f"`{name}`", f"{value:g}" if isinstance(value, float) else str(value)) for name, value in card.parameters.items()),
        ("Seed", str(card.seed)),
        *((f"Events: {part}", f"{count:,}") for part, count in card.rows.items()),
        *((name, f"{value:.4f}") for name, value in card.metrics.items()),
        ("Size of model.onnx", f"{size:,} bytes"),
        *([] if parity is None else [("ONNX against the trained model", f"scores differ by at most {parity:.0e}")]),
        ("Libraries", ", ".join(f"{name} {importlib.metadata.version(name)}" for name in libraries)),
    ]
    lines = [f"| {name} | {value} |" for name, value in rows]
    return "\n".join([f"# {card.title}", "", "| | |", "|---|---|", *lines, ""])
