"""The steps that train: search parameters, fit the best model, and export it as a package."""

import time
from functools import partial

from model_registry.oci import digests
from scorer.console.training import documents, plots
from training.export.card import Card
from training.export.export import export as exported
from training.pipeline.run import Run
from training.pipeline.run_dirs import iso
from training.pipeline.step_results import ExportResult, Trained, as_json
from training.recipes import Fitted
from training.search.final_fit import train as trained
from training.search.halving import Searched
from training.search.search import search as searched

UNITS = {"trees": "trees", "network": "epochs"}
"""The unit of a training budget, by recipe."""


def search(run: Run) -> Searched:
    """Search for the best parameters of the recipe, and draw plots of the scores. Raises Fatal."""
    parts = run.split
    shown = partial(run.progress, "trained")
    folder = run.folder / "search"
    results = searched(
        parts.training, parts.validation, run.signature, run.training, run.recipe, folder, shown, events=run.events
    )
    document = documents.read(as_json(results), documents.SearchDocument)
    unit = UNITS[run.training.recipe]
    run.draw("rungs", plots.rungs(document, unit))
    run.draw("curves", plots.curve(document, unit))
    return results


def train(run: Run) -> Trained:
    """Train the final model with the best parameters; checkpoints stay in the folder of the run. Raises Fatal."""
    best = run.result("search", Searched).best
    run.events.trial_started(best.trial, best.budget, best.parameters, final=True)
    begin = time.monotonic()
    fitted(run)
    run.events.trial_ended(best.trial, best.budget, time.monotonic() - begin, "", "", final=True)
    parts = run.split
    return Trained(len(parts.training) + len(parts.validation), best.budget, dict(best.parameters))


def fitted(run: Run) -> Fitted:
    """Return the final model: restored from its checkpoints if they are complete, else trained."""
    parts = run.split
    best = run.result("search", Searched).best
    return trained(parts.training, parts.validation, run.signature, run.training, run.recipe, best, run.folder / "model")


def export(run: Run) -> ExportResult:
    """Export the model as a package. Raises Fatal (exit code 3) if a scorer would reject the package."""
    searched = run.result("search", Searched)
    exported_model = exported(fitted(run), run.split.hold_out, run.signature, run.package, run.settings, _card(run, searched))
    contents = {path.name: digests.from_bytes(path.read_bytes()) for path in sorted(run.package.iterdir())}
    return ExportResult(exported_model.parity, contents)


def _card(run: Run, searched: Searched) -> Card:
    parts = run.rows.parts
    return Card(
        title=f"{run.settings.name} {run.rows.version}",
        recipe=run.training.recipe,
        parameters={**searched.best.parameters, UNITS[run.training.recipe]: searched.best.budget},
        seed=run.training.seed,
        rows={part.part: part.rows for part in parts},
        metrics={f"{searched.metric.upper()} (validation)": searched.best.score},
        facts={
            "Run": run.rows.run,
            "Snapshot": run.copied.digest,
            "Events": f"{iso(parts[0].from_ms)} to {iso(parts[-1].to_ms)}",
        },
    )
