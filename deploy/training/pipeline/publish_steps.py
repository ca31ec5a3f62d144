"""The steps that publish: push the version and its snapshot, attest the results, sign and promote a version that passed."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from model_registry.channels.move_request import current_actor
from model_registry.signing.predicates import COMPARISON, EVALUATION, PROVENANCE
from publisher.errors import REFUSED, Fatal
from training.pipeline.run import Run
from training.pipeline.step_results import ChampionState, Evaluated, Moved, Over, Promotion, Pushed, as_json
from training.publish import attest_and_sign, commit_label_offsets, push_version, start_rollout
from training.publish.promote import ComparedChampion, Overtaken, promote_once
from training.publish.push_version import Origin
from training.search.halving import Searched
from training.snapshot import dataset
from training.snapshot.files import verified
from training.validation_gate import leakage
from training.validation_gate.comparison import GateComparison


def push(run: Run) -> Pushed:
    """Push the version, and the snapshot as its dataset unless `snapshot.keep` is false. Raises RegistryError, Fatal."""
    pushed = push_version.push(run.store, run.package, run.rows.version, origin(run)).digest
    if not run.training.snapshot.keep:
        return Pushed(pushed, None)
    return Pushed(pushed, dataset.push(run.store, pushed, run.records, verified(run.records, run.frozen)))


def origin(run: Run) -> Origin:
    """Return the inputs to record in the version's manifest: run, snapshot, environment, seed and recipe."""
    return Origin(run.rows.run, run.copied.digest, run.plan.environment, run.training.seed, run.training.recipe.label)


def attest(run: Run) -> list[str]:
    """Attest provenance, evaluation and comparison of the version; return the digests of the three attestations.

    Raises RegistryError.
    """
    predicates = {PROVENANCE: provenance(run), EVALUATION: evaluation(run), COMPARISON: as_json(_gate(run))}
    return [
        attest_and_sign.attest_once(run.store, run.pushed.digest, type_, predicate, run.key, run.frozen_at)
        for type_, predicate in predicates.items()
    ]


def sign(run: Run) -> None:
    """Sign the version if it passed the gate. Raises RegistryError. Raises Over, which ends the run, if it did not pass."""
    judged = _gate(run)
    if judged.verdict != "passed":
        raise Over(judged.verdict, judged.because)
    attest_and_sign.sign_once(run.store, run.pushed.digest, run.rows.version, run.rows.run, run.key, run.frozen_at)


def promote(run: Run) -> Promotion:
    """Move the channel to the version, or start a rollout of the version if `publish.rollout` names a plan.

    Raises:
        Moved: The channel was moved since the version was evaluated.
        RegistryError: The registry rejected the move or is unreachable.
        Fatal: The rollout could not be started.
    """
    standing = run.result("evaluate", Evaluated).champion
    judged = ComparedChampion(standing.digest, standing.revision) if standing else ComparedChampion()
    version = run.rows.version
    digest = run.pushed.digest
    name = run.rows.run
    if plan := run.training.publish.rollout:
        begun = start_rollout.begin_once(run.settings, plan, version, digest, judged, name, current_actor())
        if isinstance(begun, Overtaken):
            if begun.by is None:
                hint = "promote a first version without publish.rollout"
                raise Fatal(f"the channel {run.channel!r} has no version to compare a rollout's candidate with", hint, REFUSED)
            raise Moved
        return Promotion("rollout", run.channel, None, begun)
    promoted = promote_once(run.store, run.channel, version, digest, judged, name, current_actor(), _now(), run.key)
    if isinstance(promoted, Overtaken):
        raise Moved
    return Promotion("promoted", run.channel, promoted.move.revision, None)


def commit(run: Run) -> dict[str, int]:
    """Commit the end offset of each label range of the run's snapshot; return the committed offsets by `topic[partition]`.

    Raises Fatal.
    """
    return {
        f"{position.topic}[{position.partition}]": position.next
        for position in commit_label_offsets.commit(run.settings, run.frozen)
    }


def provenance(run: Run) -> dict[str, Any]:
    """Build the SLSA provenance of the version. An interrupted and an uninterrupted run build the same provenance."""
    searched = run.result("search", Searched)
    standing = run.result("evaluate", Evaluated).champion
    inside = {
        "run": run.rows.run,
        "seed": run.training.seed,
        "recipe": run.training.recipe.label,
        "parameters": searched.best.parameters,
        "search": replace(searched, failures=tuple(replace(failure, log="") for failure in searched.failures)),
        "rows": run.rows.parts,
        leakage.UNTIL: run.learned_until_ms,
    }
    outside = {"config": run.plan.config, "signature": msgspec.json.decode(run.plan.signature)}
    return as_json(
        {
            "buildDefinition": {
                "buildType": leakage.BUILD_TYPE,
                "externalParameters": outside,
                "internalParameters": inside,
                "resolvedDependencies": [*_spans(run), *_made_with(run, standing)],
            },
            "runDetails": {
                "builder": {"id": "https://scorestream.io/training"},
                "metadata": {"invocationId": run.rows.run},
            },
        }
    )


def evaluation(run: Run) -> dict[str, Any]:
    """Build the predicate of the evaluation: the metrics of the version on the hold-out rows."""
    evaluated = run.result("evaluate", Evaluated)
    rows = run.rows.parts[-1]
    return {
        "dataset": {"name": f"{rows.part} of run {run.rows.run}", "digest": rows.digest},
        "metrics": evaluated.metrics,
        **({"confusion_matrix": as_json(evaluated.confusion_matrix)} if evaluated.confusion_matrix else {}),
        **({"residuals": as_json(evaluated.residuals)} if evaluated.residuals else {}),
        **({"interval_coverage": as_json(evaluated.interval_coverage)} if evaluated.interval_coverage else {}),
    }


def _spans(run: Run) -> list[Mapping[str, Any]]:
    return [
        {
            "name": kind,
            "uri": f"kafka:{run.frozen.cluster_id}/{topic}/{partition}",
            "annotations": {"from": start, "to": stop},
        }
        for kind in ("events", "labels")
        for (topic, partition), (start, stop) in run.frozen.spans(kind).items()
    ]


def _made_with(run: Run, standing: ChampionState | None) -> list[Mapping[str, Any]]:
    dataset_source = {"uri": f"{run.store.repository}@{run.pushed.dataset}"} if run.pushed.dataset else {}
    dependencies: list[Mapping[str, Any]] = [
        {"name": "dataset", "digest": _sha256(run.copied.digest), **dataset_source},
        {"name": "environment", "digest": _sha256(run.plan.environment)},
    ]
    if standing:
        annotations = {"version": standing.version, "revision": standing.revision}
        uri = f"{run.store.repository}@{standing.digest}"
        dependencies.append({"name": "champion", "uri": uri, "digest": _sha256(standing.digest), "annotations": annotations})
    return dependencies


def _sha256(digest: str) -> dict[str, str]:
    return {"sha256": digest.removeprefix("sha256:")}


def _gate(run: Run) -> GateComparison:
    return run.result("gate", GateComparison)


def _now() -> datetime:
    return datetime.now(UTC)
