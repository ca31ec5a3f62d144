"""The steps `evaluate` and `gate`: measure the new version on the hold-out rows, and compare it with the champion."""

from datetime import UTC, datetime

from model_registry import package
from model_registry.package import Package
from model_registry.signing import attestation
from model_registry.signing.predicates import PROVENANCE
from publisher.errors import REFUSED, Fatal
from scorer.console.training import documents, plots
from scorer.console.training.documents import ComparisonDocument
from training.pipeline.run import Run
from training.pipeline.step_results import ChampionState, Evaluated, as_json
from training.snapshot.rows import LabelledRows
from training.snapshot.skip_counts import SkipCounts
from training.validation_gate import leakage
from training.validation_gate.comparison import GateComparison
from training.validation_gate.inputs import VerdictEvidence, Version
from training.validation_gate.metrics import ModelAnswers
from training.validation_gate.score_holdout import scored
from training.validation_gate.slices import by_field
from training.validation_gate.verdict import judge
from training.validation_gate.version_figures import (
    confusion_matrix,
    interval_coverage,
    listed_metrics,
    residual_edges,
    residuals,
)


def evaluate(run: Run) -> Evaluated:
    """Measure the new version on the hold-out rows, and record the champion to compare the version with. Raises Fatal."""
    version_scores, rejected = _scored(run, _own_version(run))
    rows = run.split.hold_out.select(version_scores.scored)
    selected = version_scores.select(version_scores.scored)
    target = rows.target
    metrics = listed_metrics(target, selected, rows.outcomes)
    serves = run.serves()
    champion = ChampionState(serves.version, serves.digest, serves.revision) if serves else None
    errors = selected.scores - rows.outcomes if target.kind == "regression" else None
    return Evaluated(
        champion,
        metrics,
        confusion_matrix(target, selected, rows.outcomes),
        None if errors is None else residuals(errors, residual_edges([errors])),
        dict(rejected.counts),
        interval_coverage(target, selected, rows.outcomes),
    )


def measured(run: Run, version: Package) -> dict[str, float]:
    """Return the metrics of a version on the hold-out rows.

    Raises Fatal (exit code 3) if the version cannot be loaded or scores no row.
    """
    answers, _ = _scored(run, version)
    rows = run.split.hold_out.select(answers.scored)
    return listed_metrics(rows.target, answers.select(answers.scored), rows.outcomes)


def gate(run: Run) -> GateComparison:
    """Compare the new version with the champion that `evaluate` recorded, and draw plots of the result. Raises Fatal."""
    challenger = Version(run.rows.version, run.pushed.digest, _scored(run, _own_version(run))[0])
    comparison = _judged(run, challenger, run.result("evaluate", Evaluated).champion)
    document = shown_comparison(comparison)
    run.draw("rules", plots.rules(document))
    run.draw("matrices", plots.matrices(document))
    return comparison


def shown_comparison(comparison: GateComparison) -> ComparisonDocument:
    """Convert a comparison to the document that the scorer's web console shows.

    Raises Fatal (exit code 3) if the document would exceed its limits, for example with labels or scores above 1e15.
    """
    try:
        return documents.read(as_json(comparison), ComparisonDocument)
    except ValueError as error:
        hint = "correct labels and scores with a size above 1e15, or withdraw such labels"
        raise Fatal(f"the comparison is no valid document: {error}", hint, REFUSED) from None


def compared(run: Run, challenger: ChampionState, champion: ChampionState | None) -> GateComparison:
    """Compare two versions of the repository on the hold-out rows of this run. Raises Fatal, RegistryError.

    If `champion` is None, the challenger is compared with chance or with the best constant prediction.
    """
    return _judged(run, _version(run, challenger), champion)


def hold_out_answers(run: Run, version: ChampionState) -> tuple[LabelledRows, ModelAnswers]:
    """Return the hold-out rows that the version scores, and its scores and decisions. Raises Fatal, RegistryError."""
    answers = _version(run, version).scored
    return run.split.hold_out.select(answers.scored), answers.select(answers.scored)


def _judged(run: Run, challenger: Version, champion: ChampionState | None) -> GateComparison:
    rows = run.split.hold_out
    evidence = VerdictEvidence(
        run=run.rows.run,
        rows=rows,
        mature_times=run.joined.mature_times[run.joined.mature_times > run.learned_until_ms],
        challenger=challenger,
        champion=_version(run, champion) if champion else None,
        leaked=_leaked(run, champion) if champion else None,
        slices=by_field(rows, run.settings, run.signature, run.training.gate.slices),
    )
    return judge(evidence, run.training.gate, run.training.labels.coverage, run.training.seed)


def _own_version(run: Run) -> Package:
    return package.read(run.package, digest=run.pushed.digest, version=run.rows.version, name=run.settings.name)


def _version(run: Run, standing: ChampionState) -> Version:
    return Version(standing.version, standing.digest, _scored(run, run.version(standing.digest))[0], standing.revision)


def _scored(run: Run, version: Package) -> tuple[ModelAnswers, SkipCounts]:
    if version.digest not in run.scores:
        run.scores[version.digest] = scored(version, run.settings, run.split.hold_out)
    return run.scores[version.digest]


def _leaked(run: Run, standing: ChampionState) -> int | None:
    """Return how many hold-out rows the champion was trained on; None if this is unknown."""
    # The champion's provenance names the rows. The number is unknown without a provenance that a trusted key signed.
    attestations = attestation.list_attestations(run.store, standing.digest, run.trusted, datetime.now(UTC))
    learned = [
        leakage.learned(attested.predicate) for attested in attestations if attested.verified and attested.type == PROVENANCE
    ]
    learned_rows = [
        definition.rows(run.split.hold_out, run.frozen.cluster_id) for definition in learned if definition is not None
    ]
    return max(learned_rows, default=None)
