"""The steps that learn: search parameters, train the best of them, and export what came of it as a package."""

from functools import partial

from training import search as searching
from training.export.package import Exported
from training.export.package import export as exported
from training.search.train import Trained
from training.search.train import train as trained
from training.steps.run import Run


def search(run: Run) -> searching.Searched:
    """Raises Fatal."""
    parts = run.split
    shown = partial(run.progress, "trials")
    return searching.search(
        parts.training, parts.validation, run.signature, run.training, run.recipe, run.folder / "search", shown
    )
