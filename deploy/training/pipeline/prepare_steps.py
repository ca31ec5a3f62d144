"""The first steps of a run: plan it, freeze offset ranges, copy their records, and join events with labels."""

import time
from functools import partial
from pathlib import Path

from model_registry.errors import Refused
from model_registry.package.signature import Signature
from model_registry.package.signature_schema import parse_signature
from publisher.errors import USAGE, Fatal
from scorer.features.required_log import check_fields, joined_names, require_log
from training import environment
from training.pipeline.journal import Journal
from training.pipeline.run import Run, config
from training.pipeline.run_dirs import STEPS, runs
from training.pipeline.step_results import Counted, JoinResult, Over, Part, RunPlan
from training.publish.push_version import version_of
from training.snapshot import freeze as freeze_topics
from training.snapshot.files import Frozen
from training.snapshot.join_labels import PARTS, class_counts, find_target, outcome_range
from training.snapshot.rows import LabelledRows as Labelled
from training.validation_gate import gate_defaults


def plan(run: Run) -> RunPlan:
    """Determine the plan of the run: its configuration, signature and environment.

    Raises:
        Fatal: Exit code 2 if there is no signing key or no signature, if the records that `snapshot.from` selects lack fields
            of the signature, or if the labels do not fit the signature, `evaluation` or `gate.metric`.
        RegistryError: The champion or the key cannot be read.
    """
    run.key  # noqa: B018 - a run without a usable key fails before any work
    champion = _champion_signature(run)
    signature = _stated(run.training.signature) if run.training.signature else champion
    if signature is None:
        hint = "set signature in training.yaml to a file, such as signature.json; a first version needs it"
        raise Fatal(f"the channel {run.channel!r} of {run.store.repository} has no champion with a signature.json", hint, USAGE)
    _check_source(run, signature)
    gate_defaults.complete(run.training.gate, find_target(run.settings, signature, run.training.evaluation))
    champion_signature = None if champion is None else champion.to_json()
    return RunPlan(
        _now_ms(),
        config(run.training, run.settings),
        signature.to_json(),
        champion_signature,
        environment.digest(),
        run.force_new,
    )


def freeze(run: Run) -> Frozen:
    """Determine the offset ranges of events and labels that the run reads. Raises Fatal."""
    return freeze_topics.freeze(run.settings, run.training, _now_ms())


def copy(run: Run) -> Counted:
    """Copy the records of the frozen offset ranges to files.

    Raises:
        Fatal: Exit code 3 if records are lost or the disk is full, 4 if the broker is unreachable.
        Over: No new label has arrived since the last completed run. This exception ends the run.
    """
    if last := _nothing_new_since(run):
        raise Over("nothing-new", f"no new label has arrived since the run {last}")
    copied = freeze_topics.copy(run.settings, run.frozen, run.records, partial(run.progress, "records copied"))
    return Counted(copied.digest, copied.records("events"), copied.records("labels"))


def join(run: Run) -> JoinResult:
    """Join the events with their labels. Raises Fatal. Raises Over, which ends the run, if too few events have a label."""
    joined = run.joined
    bound = run.training.labels.coverage
    if joined.coverage < bound:
        message = f"only {joined.coverage:.1%} of the events have a label; labels.coverage requires {bound:.1%}"
        raise Over("too-few-labels", message)
    parts = tuple(_part(name, rows) for name, rows in zip(PARTS, run.split, strict=True))
    return JoinResult(**joined.summary(), parts=parts, run=run.identity, version=version_of(run.identity, run.frozen_at))


def _check_source(run: Run, signature: Signature) -> None:
    """Check that the records that `snapshot.from` selects have all fields of the signature. Raises Fatal (exit code 2)."""
    features = run.settings.features
    if run.training.snapshot.from_ == "features":
        check_fields(features, signature)
    elif require_log(features, [signature]):
        names = ", ".join(map(repr, joined_names(signature)))
        raise Fatal(f"events do not hold the joined fields {names}", "set snapshot.from: features", USAGE)


def _champion_signature(run: Run) -> Signature | None:
    """Return the signature of the champion, or None if the channel does not exist yet or the champion has no signature."""
    serves = run.serves()
    return run.version(serves.digest).signature if serves else None


def has_planned_signature(planned: RunPlan, path: Path | None) -> bool:
    """Return whether the signature file that the configuration names still has the signature of the plan.

    The result is True if the configuration names no file, and False if the file cannot be read.
    """
    try:
        return path is None or parse_signature(path.read_bytes()).to_json() == planned.signature
    except (OSError, Refused):
        return False


def _stated(path: Path) -> Signature:
    """Read the signature file that the configuration names. Raises Fatal (exit code 2) if the file cannot be read."""
    try:
        return parse_signature(path.read_bytes())
    except (OSError, Refused) as error:
        raise Fatal(f"signature {path}: {error}", "see model_registry/docs/signature.md", USAGE) from None


def _part(name: str, rows: Labelled) -> Part:
    times = rows.places.time_ms
    return Part(name, int(times[0]), int(times[-1]), len(rows), class_counts(rows), rows.digest(), outcome_range(rows))


def _nothing_new_since(run: Run) -> str:
    """Return the folder name of the last completed run if a new run would use the same labels, else ""."""
    # The labels are the same if configuration, signature file and topics are unchanged, and the label ranges end at the same
    # offsets. Without a signature file, the signature is that of the champion, which the last run itself may have replaced.
    # With `force_new` the result is "".
    ended = [folder for folder in runs(run.folder.parent) if folder < run.folder and Journal(folder / STEPS).entry("end")]
    if not ended or run.plan.force_new:
        return ""
    last = Journal(ended[-1] / STEPS)
    planned = last.result("plan", RunPlan)
    frozen = last.result("freeze", Frozen)
    if not planned or not frozen or planned.config != run.plan.config or frozen.ids != run.frozen.ids:
        return ""
    if run.training.signature and planned.signature != run.plan.signature:
        return ""
    ends = [[stop for _, stop in snapshot.spans("labels").values()] for snapshot in (frozen, run.frozen)]
    return ended[-1].name if ends[0] == ends[1] else ""


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
