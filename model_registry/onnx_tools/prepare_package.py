"""Checks a folder before it becomes a version: the model is safe, its signature is known, its golden examples hold.

It also records what the model requires of a scorer.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from model_registry import atomic_files, package
from model_registry.errors import Refused
from model_registry.oci import build_artifact
from model_registry.onnx_tools import derive_signature, run_golden, runtime_requirements, safety, tensors
from model_registry.onnx_tools.file import OnnxFile
from model_registry.package import Package, golden, placeholders
from model_registry.package.placeholders import BLANK
from model_registry.package.signature import Signature

CLOSE = 1e-4


@dataclass(frozen=True, slots=True)
class PreparedPackage:
    """A package that may be pushed.

    Attributes:
        package: The package.
        more: Content by name of files that the folder lacks.
        annotations: The model's requirements, for the manifest.
        derived: Whether the signature was derived, and is in `more`.
        ran: The version of ONNX Runtime that scored the golden examples; empty if none is installed or the model is `remote`.
        remote: Whether the model runs on a server. The scorer checks it before the version goes live.
        files: The files of the folder that belong to the package.
        left_out: The other files, and the folders (with a final slash) that hold them.
    """

    package: Package
    more: Mapping[str, bytes]
    annotations: Mapping[str, str]
    derived: bool = False
    ran: str = ""
    remote: bool = False
    files: Collection[str] = ()
    left_out: Sequence[str] = ()


class MissingScores(Refused):
    """A package whose golden examples have no scores yet. `lines` are the examples with the model's scores if it ran."""

    def __init__(self, folder: Path, lines: str = "") -> None:
        super().__init__(f"{folder / package.GOLDEN} has a score that is still to be filled in", "write what the model answers")
        self.lines = lines


def run_here(work: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function that loads a model."""
    return work(*arguments)


def prepare(
    folder: Path, *, devices: Sequence[str] = (), op_domains: Sequence[str] = (), run: Callable[..., Any] = run_here
) -> PreparedPackage:
    """Check a folder.

    Args:
        folder: The folder with the model.
        devices: The devices of which a scorer must have one; empty allows any.
        op_domains: The operator domains that are allowed in addition to the standard ones.
        run: Calls a function that loads the model; `sandbox.run_apart` turns a crash of the model into Refused.

    Raises:
        Corrupt: The model is not an ONNX file.
        Underivable: The signature must be written by hand.
        MissingScores: A golden example has no score.
        Refused: Another check fails.
    """
    placeholders.check(folder)
    path = package.find_model(folder)
    stated = package.read_signature(folder)
    if path.name != package.MODEL:
        if stated is None:
            raise Refused(
                f"{folder} has no {package.SIGNATURE}, which a model on a server needs",
                "write one: see deploy/model-servers.md",
            )
        contents = _read(folder, stated)
        if _unanswered(contents):
            raise MissingScores(folder)
        golden.check_has_example(stated, contents.golden)
        members, others = _members(folder, ())
        return PreparedPackage(contents, {}, {}, remote=True, files=members, left_out=others)
    model = safety.check(path, stated, op_domains)
    if fault := tensors.unfeedable_reason(model.inputs):
        raise Refused(fault, "see model_registry/docs/signature.md for what events can feed")
    if odd := tensors.first_unreadable(model.outputs):
        raise Refused(f"no output of the model is a tensor: {odd.name!r} is {odd.dtype}", tensors.remedy(odd))
    signature = stated or derive_signature.derive(model.inputs, model.outputs)
    contents = _read(folder, signature)
    golden.check_has_example(signature, contents.golden)
    more = {} if stated else {package.SIGNATURE: signature.to_json().encode()}
    members, others = _members(folder, (weights.location for weights in model.external))
    needs = runtime_requirements.derive_requirements(model, tuple(devices))
    return PreparedPackage(
        contents, more, needs, stated is None, _ran(contents, signature, model, run), files=members, left_out=others
    )


def _members(folder: Path, weights: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the files of a folder that belong to its package, and the others, as `PreparedPackage` names them.

    A package consists of its model with the files of its weights, the signature, the golden examples, and pages for people.
    """
    with atomic_files.report_os_errors(f"the package {folder}"):
        paths = sorted(build_artifact.walk(folder, hidden=False))
    expected = {package.SIGNATURE, package.GOLDEN, *weights}
    members = [path for path in paths if path in expected or path.split("/")[0] in package.MODELS or _is_for_people(path)]
    others = {path if "/" not in path else f"{path.split('/')[0]}/" for path in paths if path not in members}
    return members, sorted(others)


def _is_for_people(path: str) -> bool:
    """Return whether a file at the top of a package is its model card, another page, or a licence."""
    return "/" not in path and (
        path.endswith(".md") or path.split(".")[0].upper() in ("LICENSE", "LICENCE", "NOTICE", "COPYING")
    )


def _read(folder: Path, signature: Signature) -> Package:
    """Read the folder's package. Raises Refused, also for a golden.jsonl without examples."""
    contents = package.read(folder, signature)
    if not contents.golden and (folder / package.GOLDEN).exists():
        raise Refused(f"{folder / package.GOLDEN} has no example", f'write events with the score "{BLANK}", or remove the file')
    return contents


def _ran(contents: Package, signature: Signature, stated: OnnxFile, run: Callable[..., Any]) -> str:
    """Return the ONNX Runtime that scored the golden examples; empty if none is installed. Raises Refused, MissingScores."""
    try:
        if _unanswered(contents):
            events = [example.event for example in contents.golden]
            raise MissingScores(contents.folder, run(golden_lines_from_file, contents.model_path, signature, stated, events))
        return str(run(run_golden.run, contents.model_path, signature, contents.golden, stated))
    except ImportError:
        if _unanswered(contents):
            raise MissingScores(contents.folder) from None
        return ""


def _unanswered(contents: Package) -> bool:
    return any(placeholders.is_placeholder(example.score) for example in contents.golden)


def golden_lines(model: run_golden.LoadedOnnxModel, events: Sequence[dict[str, Any]]) -> str:
    """Return lines of golden.jsonl: events with the model's score of each alone, if it is finite. Raises Refused."""
    scored = [(event, score) for event in events for score in model.answers([event]) if golden.is_score(score)]
    lines = ({"event": event, "score": score, "tolerance": tolerance(score)} for event, score in scored)
    return "".join(msgspec.json.encode(line).decode() + "\n" for line in lines)


def golden_lines_from_file(model: Path, signature: Signature, stated: OnnxFile, events: Sequence[dict[str, Any]]) -> str:
    """Load a model and return its `golden_lines`. Raises ImportError too."""
    return golden_lines(run_golden.LoadedOnnxModel(model, signature, stated), events)


def tolerance(score: Any) -> float:
    """Return how far a score may differ on another machine: 1e-4, or 1e-4 of its largest number if that exceeds 1."""
    return float(f"{CLOSE * max(1.0, _largest(score)):.0e}")


def _largest(score: Any) -> float:
    if isinstance(score, dict | list):
        return max(map(_largest, score.values() if isinstance(score, dict) else score), default=0.0)
    return abs(float(score)) if isinstance(score, int | float) else 0.0
