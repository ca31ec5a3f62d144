"""Drafts a package to be completed by hand: the model, a partial signature, golden examples and a model card."""

import re
import shlex
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from model_registry import package
from model_registry.default_limits import DEFAULT_DOMAINS
from model_registry.errors import Refused
from model_registry.onnx_tools import (
    declared_tensors,
    draft_events,
    draft_folder,
    draft_inputs,
    draft_labels,
    draft_outputs,
    draft_unbatched,
    remove_zipmap,
    safety,
)
from model_registry.onnx_tools.draft_events import Event
from model_registry.onnx_tools.onnx_reader import OnnxFile
from model_registry.onnx_tools.prepare_package import golden_lines_from_file
from model_registry.package import golden_examples, placeholders
from model_registry.package.placeholders import BLANK
from model_registry.package.signature import Signature
from model_registry.package.signature_schema import parse_signature
from model_registry.sandbox import run_apart

CARD = "README.md"
MAX_GOLDEN = 5
_VERSIONED = re.compile(r"(?P<name>.+?)-(?P<version>[0-9]+(\.[0-9]+)+([._-]?(a|b|alpha|beta|rc|dev|post)[.-]?[0-9]*)?)")
"""Matches the name of a folder that ends with a version, such as late-1.0.0. A version has a dot. Therefore resnet-50 and
model-v2-0-cls do not match."""


@dataclass(frozen=True, slots=True)
class DraftedPackage:
    """The result of drafting a package.

    Attributes:
        files: The names of the written files.
        notes: Messages about the choices that were made.
        gaps: The placeholders that the user must replace, with their positions.
        commands: The commands that the user runs next.
    """

    files: list[str]
    notes: list[str]
    gaps: list[str]
    commands: list[str]


@dataclass(frozen=True, slots=True)
class SavedFields:
    """The properties of fields that the caller of `write` knows already, for example from an MLflow model.

    Attributes:
        tables: The names of the tables from which fields are joined.
        columns: The names of the fields of a row, in their order, for a model with one input; empty if they are not known.
        optional: The names of the fields that events may lack.
    """

    tables: Sequence[str]
    columns: Sequence[str]
    optional: Collection[str]


def write(
    model: Path,
    folder: Path,
    example: Path | None,
    labels: Path | None,
    domains: Collection[str],
    tables: Sequence[str] = (),
    columns: Sequence[str] = (),
    optional: Collection[str] = (),
) -> DraftedPackage:
    """Draft the package of a model and write it into a folder.

    Args:
        model: The ONNX model.
        folder: The folder of the package.
        example: A file with example events; None drafts without examples.
        labels: A file with the labels of the output's columns; None drafts without labels.
        domains: The operator domains that are allowed in addition to the standard ones.
        tables: The names of the tables from which fields of the examples are joined.
        columns: The names of the fields of a row, in their order, for a model with one input; empty if they are not known.
        optional: The names of the fields that events may lack.

    Raises:
        Corrupt: The model is not an ONNX file.
        Refused: A file exists, the model is unsafe, the events or labels cannot be read, or the examples have no field of one
            of the tables.
    """
    with tempfile.TemporaryDirectory(prefix="model-registry-") as scratch:
        fields = SavedFields(tables, columns, optional)
        return _write(model, folder, example, labels, domains, fields, Path(scratch))


def _write(
    stated: Path,
    folder: Path,
    example: Path | None,
    labels: Path | None,
    domains: Collection[str],
    fields: SavedFields,
    scratch: Path,
) -> DraftedPackage:
    onnx_file = safety.check(stated, None, domains)
    if fault := declared_tensors.unfeedable_reason(onnx_file.inputs):
        raise Refused(fault, "model_registry/docs/signature.md lists the tensors that events can feed")
    model, changes = _without_zipmap(stated, onnx_file, folder, scratch)
    onnx_file = onnx_file if model is stated else safety.check(model, None, domains)
    events = draft_events.read(example) if example else []
    document, notes = _signature(onnx_file, events, draft_labels.read(labels) if labels else [], fields)
    notes[:0] = changes
    signature = None if any(placeholders.find_in_document(document)) else parse_signature(msgspec.json.encode(document))
    if signature and (fault := declared_tensors.find_fault(signature, onnx_file.inputs, onnx_file.outputs)):
        raise Refused(fault, "export the model again, or write its signature.json by hand")
    texts = {package.SIGNATURE: msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n"}
    if golden_lines := _golden(model, onnx_file, signature, events, notes):
        texts[package.GOLDEN] = golden_lines
    name, version = _name_and_version(folder)
    texts[CARD] = (
        f"# {name} {version}\n\n{BLANK}: what the score says of an event, what the model was trained on, its limits.\n"
    )
    return DraftedPackage(
        draft_folder.write(model, onnx_file, folder, texts),
        notes,
        _open(folder, texts),
        _commands(folder, name, version, domains),
    )


def _without_zipmap(model: Path, onnx_file: OnnxFile, folder: Path, scratch: Path) -> tuple[Path, list[str]]:
    """If the model ends with the operator ZipMap, write a copy without this operator into the scratch folder.

    Returns:
        The path of the model to use, and notes about the change; no notes if nothing was changed.

    Raises:
        Refused: The library `onnx` is not installed, the folder already has the model, or the copy computes different
            probabilities.
    """
    zipped = any(output.dtype == declared_tensors.MAPS for output in onnx_file.outputs)
    if not zipped or not remove_zipmap.is_in(onnx_file) or onnx_file.external:
        return model, []
    if (folder / package.MODEL).exists():
        raise Refused(
            f"{folder / package.MODEL} has a final ZipMap, and nothing is overwritten", "choose another folder with --into"
        )
    try:
        unzipped = run_apart(remove_zipmap.without, model)
    except ImportError:
        hint = "pip install onnx, so that init can remove the ZipMap; or export the model without ZipMap"
        raise Refused(f"{model.name} has a final ZipMap, whose output is not a tensor", hint) from None
    if unzipped is None:
        return model, []
    uncompared = run_apart(remove_zipmap.compare, model, unzipped)
    changed = scratch / model.name
    changed.write_bytes(unzipped.data)
    return changed, [remove_zipmap.note(unzipped, uncompared)]


def _signature(
    onnx_file: OnnxFile, events: Sequence[Event], labels: Sequence[str], known: SavedFields
) -> tuple[dict[str, Any], list[str]]:
    stated = onnx_file.inputs
    values = draft_events.values(events)
    outputs = draft_unbatched.batched(stated, onnx_file.outputs)
    reason = draft_unbatched.reason_for_single_events(stated, outputs)
    opened = list(stated)
    drafted, notes = draft_inputs.draft_inputs(opened, values, known.tables)
    lengths = "" if reason else draft_unbatched.reason_for_single_lengths(stated, outputs, drafted)
    if reason := reason or lengths:
        stated, outputs = draft_unbatched.with_unit_batch(stated, outputs, lengths=bool(lengths))
        fed = draft_unbatched.select_event_inputs(stated)
        opened = [draft_unbatched.add_open_batch(tensor, alone=tensor in fed) for tensor in stated]
        drafted, notes = draft_inputs.draft_inputs(opened, values, known.tables)
    only = len(stated) == 1
    drafted = [draft_inputs.apply_columns(document, known.columns if only else (), known.optional) for document in drafted]
    inputs = [draft_unbatched.draft_single_input(*parts, only=only) for parts in zip(drafted, stated, opened, strict=True)]
    if reason:
        notes.append(f'{reason}: events are fed one at a time ("batch": false)')
    alone = any("fields" in document and not document.get("batch", True) for document in inputs)
    answers = (
        draft_outputs.draft_answer_to_one(outputs, stated, labels) if alone else draft_outputs.draft_answers(outputs, labels)
    )
    read = {output["tensor"] for output in (answers["output"] if isinstance(answers["output"], list) else [answers["output"]])}
    if unread := [output.name for output in outputs if output.name not in read]:
        notes.append(f"no score is read from {', '.join(unread)}")
    return {"inputs": inputs, **answers}, notes


def _golden(model: Path, onnx_file: OnnxFile, signature: Signature | None, events: Sequence[Event], notes: list[str]) -> str:
    """Return the text of golden.jsonl with the first valid events; empty if there are no events.

    The scores are placeholders if the signature is incomplete or ONNX Runtime is not installed. Messages are added to `notes`.
    """
    if not events:
        return ""
    if signature is None:
        notes.append(
            f"golden.jsonl has events without scores: once the signature is complete, push prints what {model.name} answers"
        )
        return _unanswered(events[:MAX_GOLDEN])
    valid = [event for event in events if not golden_examples.event_fault(signature, event)][:MAX_GOLDEN]
    try:
        text = run_apart(golden_lines_from_file, model, signature, onnx_file, valid)
    except ImportError:
        notes.append("golden.jsonl has events without scores: ONNX Runtime is not installed")
        return _unanswered(valid)
    notes.append(
        "the scores in golden.jsonl are the ONNX model's own: replace them by the original model's scores to verify the export"
    )
    return text


def _unanswered(events: Sequence[Event]) -> str:
    lines = ({"event": event, "score": BLANK, "tolerance": 1e-4} for event in events)
    return "".join(msgspec.json.encode(line).decode() + "\n" for line in lines)


def _open(folder: Path, texts: dict[str, str]) -> list[str]:
    """Return a line for each placeholder in the package, as `push` prints it. `texts` are the drafted files by name."""
    lines = texts.get(package.GOLDEN, "").splitlines()
    scores = sum(placeholders.is_placeholder(msgspec.json.decode(line)["score"]) for line in lines)
    return [*placeholders.find_in_folder(folder), *([f"golden.jsonl: the score of {scores} events"] if scores else [])]


def _name_and_version(folder: Path) -> tuple[str, str]:
    """Return the model's name and version, both taken from the name of the folder.

    The name has a form that a registry accepts. The version is 1.0.0 if the folder's name has none.
    """
    match = _VERSIONED.fullmatch(folder.resolve().name)
    name = match["name"] if match else folder.resolve().name
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "model", match["version"] if match else "1.0.0"


def _commands(folder: Path, name: str, version: str, domains: Collection[str]) -> list[str]:
    where = shlex.quote(str(folder))
    allowed = "".join(f" --op-domain {shlex.quote(domain)}" for domain in domains if domain not in DEFAULT_DOMAINS)
    return [
        f"model-registry push {where} oci:./registry/{name}:{version}{allowed}",
        f"model-registry inspect oci:./registry/{name}:{version}",
        f'model-registry promote oci:./registry/{name} --to {version} --reason "first version"',
    ]
