"""Train a version again from its recorded inputs and compare the digests.

The rows come from the dataset that the registry stores for the version; configuration, seed and signature come from the
version's signed provenance. Nothing is pushed to the registry.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
from pydantic import ValidationError

from model_registry import package
from model_registry.channels import channel
from model_registry.errors import Refused
from model_registry.package import MODEL
from model_registry.package.signature_schema import parse_signature
from model_registry.signing import attestation
from model_registry.signing.predicates import PROVENANCE
from model_registry.stores import resolve_index
from model_registry.stores.base import Store
from model_registry.stores.oci_layout import LayoutStore
from scorer.settings import Settings
from training import environment
from training.pipeline import evaluate_steps, pipeline
from training.pipeline.publish_steps import origin
from training.pipeline.run import Progress, Run, schema
from training.pipeline.step_results import Counted, RunPlan
from training.publish import push_version
from training.publish.verify_lineage import DecisionEvidence, evidence
from training.recipes import own
from training.search.search import CODE
from training.settings import TrainingSettings
from training.snapshot import dataset
from training.validation_gate import gate_defaults

LAST = "export"
_HINT = "only a version that a run has built can be reproduced"


class _Outside(msgspec.Struct, frozen=True):
    config: dict[str, dict[str, Any]]
    signature: dict[str, Any]


class _StoredDefinition(msgspec.Struct, frozen=True, rename="camel"):
    external_parameters: _Outside


class _StoredProvenance(msgspec.Struct, frozen=True, rename="camel"):
    build_definition: _StoredDefinition


@dataclass(frozen=True)
class Recorded:
    """The version to reproduce, as recorded in the registry: the digests of its manifest and model file, and its evidence."""

    digest: str
    model: str
    evidence: DecisionEvidence


def begin(training: TrainingSettings, settings: Settings, version: str, progress: Progress) -> tuple[Run, Recorded]:
    """Prepare a run that trains a version again: fetch the version's snapshot, and the configuration from its provenance.

    Returns:
        The run, whose next step is the join, and the recorded version.

    Raises:
        RegistryError: The version has no provenance that a trusted key signed, its provenance contains no configuration, or the
            version has no snapshot.
        Fatal: The folder or the environment cannot be used.
    """
    this_run = Run(training, settings, training.folder, progress)
    digest = channel.resolve(this_run.store, version).digest
    lineage = evidence(this_run.store, digest, this_run.trusted, datetime.now(UTC))
    outside = _outside(this_run, digest, lineage.run)
    folder = training.folder / "reproduced" / lineage.run
    shutil.rmtree(folder, ignore_errors=True)
    try:
        run = Run(_training(outside.config, training), _settings(outside.config, settings), folder, progress)
    except (ValidationError, KeyError) as error:
        raise Refused(f"{digest}: the configuration in its provenance cannot be read: {error}", _HINT) from None
    copied = dataset.pull(this_run.store, dataset.of_version(this_run.store, digest), run.records)
    if copied.digest != lineage.dataset:
        raise Refused(f"{digest}: its snapshot is {copied.digest}, but its provenance names {lineage.dataset}", _HINT)
    signature = parse_signature(msgspec.json.encode(outside.signature)).to_json()
    now_ms = copied.frozen.now_ms
    run.journal.write("plan", RunPlan(now_ms, outside.config, signature, None, lineage.environment), 0, now_ms)
    run.journal.write("freeze", copied.frozen, 0, now_ms)
    run.journal.write("copy", Counted(copied.digest, copied.records("events"), copied.records("labels")), 0, now_ms)
    return run, Recorded(digest, _model(this_run.store, digest), lineage)


def reproduced(run: Run, recorded: Recorded, done: Callable[[str, float], None]) -> dict[str, Any]:
    """Repeat the steps of a run up to the export, and compare every digest with the recorded one.

    Returns:
        A mapping. `same` is true if the manifests are equal. `folder` is the folder of the run. `parts` has the recorded and
        the new digest of the version, the model, the run and the environment. If the models differ, both are measured on the
        hold-out: `metrics` has the recorded and the new value of each metric, and `because` is the reason in one sentence.

    Raises:
        Fatal: A step failed.
        RegistryError: The stored version or the built package cannot be read.
    """
    pipeline.follow(run, LAST, done)
    store = LayoutStore(run.folder / "registry" / push_version.model_name(run.store))
    pushed = push_version.push(store, run.package, run.rows.version, origin(run)).digest
    parts = {
        "version": (recorded.digest, pushed),
        MODEL: (recorded.model, _model(store, pushed)),
        "run": (recorded.evidence.run, run.rows.run),
        "environment": (recorded.evidence.environment, environment.digest()),
    }
    comparisons = {name: {"recorded": recorded_value, "now": now} for name, (recorded_value, now) in parts.items()}
    document = {"same": recorded.digest == pushed, "folder": str(run.folder), "parts": comparisons}
    if recorded.model == parts[MODEL][1]:
        return document
    metrics = _metrics(run, recorded, pushed)
    return document | {"metrics": metrics, "because": _difference(run, metrics, parts["environment"])}


def _metrics(run: Run, recorded: Recorded, pushed: str) -> dict[str, dict[str, float | None]]:
    """Return the metrics of the recorded and of the new version on the hold-out rows, by the name of the metric."""
    versions = {"recorded": run.version(recorded.digest), "now": package.read(run.package, digest=pushed)}
    results = {side: evaluate_steps.measured(run, version) for side, version in versions.items()}
    return {name: {side: found.get(name) for side, found in results.items()} for name in results["recorded"]}


def _difference(run: Run, metrics: Mapping[str, Mapping[str, float | None]], environments: tuple[str, str]) -> str:
    """Return the reason why the models differ, and the difference of the gate's metric if it is known.

    The reason is that `environments` (recorded, new) differ, or else that the training is not deterministic.
    """
    metric = gate_defaults.complete(run.training.gate, run.joined.target).metric
    assert metric is not None
    recorded, now = (metrics.get(metric, {}).get(side) for side in ("recorded", "now"))
    difference = (
        "" if recorded is None or now is None else f", metric difference {now - recorded:+.6f} ({metric} of the hold-out)"
    )
    if environments[0] != environments[1]:
        return f"the environment differs{difference}"
    return f"not deterministic{difference}"


def _outside(run: Run, digest: str, name: str) -> _Outside:
    """Return the external parameters of a run from its signed provenance.

    `digest` is the manifest digest of the version, `name` the id of the run. Raises Refused if no trusted key signed a
    provenance of this run.
    """
    for attested in attestation.list_attestations(run.store, digest, run.trusted, datetime.now(UTC)):
        if (
            attested.verified
            and attested.type == PROVENANCE
            and attested.predicate["runDetails"].get("metadata", {}).get("invocationId") == name
        ):
            try:
                return msgspec.convert(attested.predicate, _StoredProvenance).build_definition.external_parameters
            except msgspec.ValidationError as error:
                raise Refused(f"{digest}: its provenance cannot be read: {error}", _HINT) from None
    raise Refused(f"{digest} has no provenance of run {name} that a trusted key signed", _HINT)


def _training(config: dict[str, dict[str, Any]], training: TrainingSettings) -> TrainingSettings:
    """Return the recorded training settings, with the folders, workers and keys taken from `training`.

    For a version that a command trained, `training` must name a command with the same code; otherwise Refused is raised.
    """
    own_options = {"scorer": training.scorer, "folder": training.folder, "workers": training.workers, "gpus": training.gpus}
    if CODE in config:
        own_options["recipe"] = _own_recipe(config, training)
    return TrainingSettings.model_validate({**config["training"], **own_options, "publish": training.publish.model_dump()})


def _own_recipe(config: dict[str, dict[str, Any]], training: TrainingSettings) -> dict[str, Any]:
    """Return the recorded section `recipe` of a version that a command trained.

    Options that depend on the machine come from `training`. Raises Refused if `training` has no command, or if a file of its
    code differs from the recorded one.
    """
    recipe = training.recipe
    if not recipe.command:
        raise Refused("the version was trained by a command, but recipe.command is not set", "configure the same recipe")
    recorded, present = config[CODE], own.code(recipe)
    changed = sorted(name for name in {*recorded, *present} if recorded.get(name) != present.get(name))
    if changed:
        hint = "restore the files of the version, for instance from version control; its provenance has their SHA-256"
        raise Refused(f"{changed[0]} differs from the recipe's file that trained the version", hint)
    here = recipe.model_dump(include={"folder", "image", "deadline", "space", "launcher"}, mode="json")
    return {**config["training"]["recipe"], **here}


def _settings(config: dict[str, dict[str, Any]], settings: Settings) -> Settings:
    """Return the recorded scorer settings, with the broker, registry and files taken from `settings`.

    Raises RegistryError.
    """
    stated = config["scorer"]
    own_schema = schema(settings)
    if stated["schema"] != own_schema:
        hint = "name that schema in input.schema_file"
        raise Refused(
            f"the events were read with the schema {stated['schema']}, but the configured schema is {own_schema}", hint
        )
    sections = {
        "input": type(settings.input).model_validate({**stated["input"], "schema_file": settings.input.schema_file}),
        "labels": type(settings.labels).model_validate(stated["labels"]),
        "features": type(settings.features).model_validate(stated.get("features", {})),
    }
    return settings.model_copy(update={**sections, "name": str(stated["name"]), "region": stated["region"]})


def _model(store: Store, digest: str) -> str:
    """Return the digest of the model file of a version, or "" if the version has no model file. Raises RegistryError."""
    return next((file.content.digest for file in resolve_index.describe_version(store, digest).files if file.path == MODEL), "")
