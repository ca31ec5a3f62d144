"""The steps that train: search parameters, fit the best model, and export it as a package."""

from functools import partial

from model_registry.oci import digests
from scorer.console.training import documents, plots
from training.export.card import Card
from training.export.export import export as exported
from training.pipeline.run import Run
from training.pipeline.run_dirs import iso
from training.pipeline.step_results import ExportResult, Trained, as_json
from training.recipes import Fitted, named, own
from training.search.final_fit import restored
from training.search.final_fit import train as trained
from training.search.halving import Searched
from training.search.search import CODE
from training.search.search import search as searched

UNITS = {"trees": "trees", "network": "epochs", "own": "steps"}
"""The unit of a training budget, by recipe."""
MODEL = "model"
"""The folder of the final training in the folder of the run."""


def search(run: Run) -> Searched:
    """Search for the best parameters of the recipe, and draw plots of the scores. Raises Fatal."""
    parts = run.split
    shown = partial(run.progress, "trained")
    folder = run.folder / "search"
    _copy_code(run)
    results = searched(parts.training, parts.validation, run.signature, run.training, run.recipe, folder, shown, run.events)
    document = documents.read(as_json(results), documents.SearchDocument)
    unit = UNITS[run.training.recipe.label]
    run.draw("rungs", plots.rungs(document, unit))
    run.draw("curves", plots.curve(document, unit))
    return results


def train(run: Run) -> Trained:
    """Train the final model with the best parameters; model and checkpoints stay in the folder of the run. Raises Fatal."""
    parts = run.split
    best = run.result("search", Searched).best
    _copy_code(run)
    trained(
        parts.training,
        parts.validation,
        run.signature,
        run.training,
        run.recipe,
        best,
        run.folder / MODEL,
        run.events,
    )
    return Trained(len(parts.training) + len(parts.validation), best.budget, dict(best.parameters))


def export(run: Run) -> ExportResult:
    """Export the model as a package. Raises Fatal (exit code 3) if a scorer would reject the package."""
    searched = run.result("search", Searched)
    source = run.folder / MODEL
    exported_model = exported(
        source, _fitted(run), run.split.hold_out, run.signature, run.package, run.settings, _card(run, searched)
    )
    contents = {path.name: digests.from_bytes(path.read_bytes()) for path in sorted(run.package.iterdir())}
    return ExportResult(exported_model.parity, contents)


def _fitted(run: Run) -> Fitted | None:
    """Return the final model of a built-in recipe, restored from its checkpoints; None for a user's own recipe."""
    if run.training.recipe.command:
        return None
    parts = run.split
    best = run.result("search", Searched).best
    recipe = named(run.training.recipe.name, run.training.gpus)
    return restored(parts.training, parts.validation, run.signature, run.training, recipe, best, run.folder / MODEL)


def _copy_code(run: Run) -> None:
    """Copy the code of a user's own recipe to the run's folder, so that later changes of its files do not affect the run."""
    if run.training.recipe.command:
        own.copy_code(run.training.recipe, run.plan.config[CODE], run.folder / CODE)


def _card(run: Run, searched: Searched) -> Card:
    parts = run.rows.parts
    label = run.training.recipe.label
    metric = searched.metric.upper() if searched.metric == "auc" else searched.metric
    facts = {
        "Run": run.rows.run,
        "Snapshot": run.copied.digest,
        "Events": f"{iso(parts[0].from_ms)} to {iso(parts[-1].to_ms)}",
    }
    if run.rows.target.quantile is not None:
        facts["Predicts"] = f"the {run.rows.target.quantile:g} quantile of the label"
    if run.training.recipe.command:
        facts["Command"] = f"`{' '.join(run.training.recipe.command)}`"
        facts |= {f"Code: {name}": f"`sha256:{digest}`" for name, digest in run.plan.config[CODE].items()}
    return Card(
        title=f"{run.settings.name} {run.rows.version}",
        recipe=label,
        parameters={**searched.best.parameters, UNITS[label]: searched.best.budget},
        seed=run.training.seed,
        rows={part.part: part.rows for part in parts},
        metrics={f"{metric} (validation)": searched.best.score},
        facts=facts,
    )
