"""Checks the folder of a package before a push: the model must be safe, have a signature, and give its golden scores.

The module also derives the requirements that a scorer must meet to run the model.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from model_registry import atomic_files, package
from model_registry.errors import Refused
from model_registry.extras import install_command
from model_registry.oci import build_artifact
from model_registry.onnx_tools import declared_tensors, derive_signature, run_golden_examples, runtime_requirements, safety
from model_registry.onnx_tools.onnx_reader import OnnxFile
from model_registry.package import Package, golden_examples, placeholders
from model_registry.package.placeholders import BLANK
from model_registry.package.signature import Signature

CLOSE = 1e-4


@dataclass(frozen=True, slots=True)
class AcceptedScore:
    """A golden example and the model's score of its event, which may replace the expected score.

    Attributes:
        event: The event.
        stated: The expected score in golden.jsonl, or a placeholder.
        score: The model's score.
        tolerance: The largest allowed difference between the expected score and the model's score.
        differs: Whether `stated` is a placeholder, or differs from `score` by more than `tolerance`.
    """

    event: dict[str, Any]
    stated: Any
    score: Any
    tolerance: float
    differs: bool

    @property
    def line(self) -> bytes:
        """The line that `write_accepted` writes: with the model's score if `differs` is true, else with the stated score."""
        score = self.score if self.differs else self.stated
        return msgspec.json.encode({"event": self.event, "score": score, "tolerance": self.tolerance}) + b"\n"


@dataclass(frozen=True, slots=True)
class PreparedPackage:
    """A package that passed all checks and may be pushed.

    Attributes:
        package: The package.
        generated_files: The content of files to push that are not in the folder, by name: a derived signature.json.
        annotations: The model's requirements, as annotations for the manifest.
        derived: Whether the signature was derived from the model, and is in `generated_files`.
        onnxruntime_version: The version of ONNX Runtime that ran the model; empty if none is installed or the model is
            `remote`.
        remote: Whether the model runs on a model server. Such a model is checked only when a scorer loads the version.
        files: The files in the folder that belong to the package.
        left_out: The files in the folder that do not belong to the package. The files in a subfolder are listed as one entry,
            the name of the subfolder with a final slash.
    """

    package: Package
    generated_files: Mapping[str, bytes]
    annotations: Mapping[str, str]
    derived: bool = False
    onnxruntime_version: str = ""
    remote: bool = False
    files: Collection[str] = ()
    left_out: Sequence[str] = ()


class MissingScores(Refused):
    """A golden example has a placeholder instead of a score.

    `lines` is the text of golden.jsonl with the model's scores; empty if the model did not run.
    """

    def __init__(self, folder: Path, lines: str = "") -> None:
        super().__init__(
            f"{folder / package.GOLDEN} has a score that is still to be filled in",
            "write what the model answers, or let `model-registry push --accept` write it",
        )
        self.lines = lines


def run_here(work: Callable[..., Any], *arguments: Any) -> Any:
    """Call `work(*arguments)` in this process and return its result."""
    return work(*arguments)


def prepare(
    folder: Path, *, devices: Sequence[str] = (), op_domains: Sequence[str] = (), run: Callable[..., Any] = run_here
) -> PreparedPackage:
    """Check the folder of a package and return the package to push.

    Args:
        folder: The folder of the package.
        devices: The devices on which the model may run; a scorer must have one of them. Empty allows any device.
        op_domains: The operator domains that are allowed in addition to the standard ones.
        run: `run_here` to load the model in this process, or `sandbox.run_apart` to load it in a child process, so that a crash
            of the model becomes Refused.

    Raises:
        Corrupt: The model is not an ONNX file.
        Underivable: There is no signature.json, and the model is ambiguous.
        MissingScores: A golden example has a placeholder instead of a score.
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
        golden_examples.check_has_example(stated, contents.golden)
        members, others = _members(folder, ())
        return PreparedPackage(contents, {}, {}, remote=True, files=members, left_out=others)
    model = safety.check(path, stated, op_domains)
    if fault := declared_tensors.unfeedable_reason(model.inputs):
        raise Refused(fault, "model_registry/docs/signature.md lists the tensors that events can feed")
    if odd := declared_tensors.first_unreadable(model.outputs):
        raise Refused(f"no output of the model is a tensor: output {odd.name!r} is {odd.dtype}", declared_tensors.remedy(odd))
    signature = stated or derive_signature.derive(model.inputs, model.outputs)
    contents = _read(folder, signature)
    golden_examples.check_has_example(signature, contents.golden)
    more = {} if stated else {package.SIGNATURE: signature.to_json().encode()}
    members, others = _members(folder, (weights.location for weights in model.external))
    needs = runtime_requirements.derive_requirements(model, tuple(devices))
    return PreparedPackage(
        contents,
        more,
        needs,
        stated is None,
        _run_examples(contents, signature, model, run),
        files=members,
        left_out=others,
    )


def score_golden_examples(
    folder: Path, *, op_domains: Sequence[str] = (), run: Callable[..., Any] = run_here
) -> list[AcceptedScore]:
    """Return the score that the model gives to each golden example of a package in a batch of one. Nothing is written.

    An example keeps its tolerance. If its score is a placeholder, it gets the tolerance that the function `tolerance` returns.

    Args:
        folder: The folder of the package.
        op_domains: The operator domains that are allowed in addition to the standard ones.
        run: As for `prepare`.

    Raises:
        Corrupt: The model is not an ONNX file.
        Underivable: There is no signature.json, and the model is ambiguous.
        Refused: The package is incomplete or has no golden examples, the model runs on a server, ONNX Runtime is not installed,
            the model does not run, or a score has a number that is not finite.
    """
    placeholders.check(folder)
    path = package.find_model(folder)
    stated = package.read_signature(folder)
    if path.name != package.MODEL:
        fault = f"{path} runs on a model server, so push cannot compute its scores"
        raise Refused(fault, f"write its scores into {folder / package.GOLDEN}")
    model = safety.check(path, stated, op_domains)
    signature = stated or derive_signature.derive(model.inputs, model.outputs)
    contents = _read(folder, signature)
    if not contents.golden:
        hint = f'write events into it, one a line: {{"event": {{...}}, "score": "{BLANK}", "tolerance": 1e-4}}'
        raise Refused(f"there is no {folder / package.GOLDEN} whose scores could be accepted", hint)
    events = [example.event for example in contents.golden]
    try:
        scores = run(scores_from_file, path, signature, model, events)
    except ImportError:
        raise Refused("ONNX Runtime is not installed, so that no score can be accepted", install_command("cpu")) from None
    accepted = []
    for number, (example, score) in enumerate(zip(contents.golden, scores, strict=True), start=1):
        if not golden_examples.is_score(score):
            hint = "a golden example has finite numbers only; remove its line, or correct the model"
            raise Refused(f"golden example {number}: the model gives the score {score!r:.100}, which is not finite", hint)
        open_score = placeholders.is_placeholder(example.score)
        allowed = tolerance(score) if open_score else example.tolerance
        differs = open_score or not golden_examples.agrees(example.score, score, allowed)
        accepted.append(AcceptedScore(example.event, example.score, score, allowed, differs))
    return accepted


def write_accepted(folder: Path, accepted: Sequence[AcceptedScore]) -> None:
    """Replace golden.jsonl atomically by the events with their accepted scores. Raises Unreachable."""
    with atomic_files.report_os_errors(f"the package {folder}"):
        atomic_files.replace(folder / package.GOLDEN, (example.line for example in accepted))


def scores_from_file(model: Path, signature: Signature, stated: OnnxFile, events: Sequence[dict[str, Any]]) -> list[Any]:
    """Load a model, and return its score of each event in a batch of one. Raises ImportError without ONNX Runtime.

    `stated` is the content of the file as `safety.check` returned it.
    """
    loaded = run_golden_examples.LoadedOnnxModel(model, signature, stated)
    return [score for event in events for score in loaded.answers([event])]


def _members(folder: Path, weights: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the attributes `files` and `left_out` of PreparedPackage for a folder."""
    # A package consists of the model, the files of its weights, the signature, the golden examples, and the files that
    # `_is_for_people` accepts.
    with atomic_files.report_os_errors(f"the package {folder}"):
        paths = sorted(build_artifact.walk(folder, hidden=False))
    expected = {package.SIGNATURE, package.GOLDEN, *weights}
    members = [path for path in paths if path in expected or path.split("/")[0] in package.MODELS or _is_for_people(path)]
    others = {path if "/" not in path else f"{path.split('/')[0]}/" for path in paths if path not in members}
    return members, sorted(others)


def _is_for_people(path: str) -> bool:
    """Return whether a path is that of a Markdown page or a licence at the top level of a package."""
    return "/" not in path and (
        path.endswith(".md") or path.split(".")[0].upper() in ("LICENSE", "LICENCE", "NOTICE", "COPYING")
    )


def _read(folder: Path, signature: Signature) -> Package:
    """Read the package in a folder. Raises Refused in the same cases as `package.read`, and if golden.jsonl has no examples."""
    contents = package.read(folder, signature)
    if not contents.golden and (folder / package.GOLDEN).exists():
        raise Refused(f"{folder / package.GOLDEN} has no example", f'write events with the score "{BLANK}", or remove the file')
    return contents


def _run_examples(contents: Package, signature: Signature, stated: OnnxFile, run: Callable[..., Any]) -> str:
    """Run the model on the golden examples and return the version of ONNX Runtime; empty if none is installed.

    Raises:
        MissingScores: An example has a placeholder instead of a score.
        Refused: The model does not run, or a score differs from the golden example.
    """
    try:
        if _unanswered(contents):
            events = [example.event for example in contents.golden]
            raise MissingScores(contents.folder, run(golden_lines_from_file, contents.model_path, signature, stated, events))
        return str(run(run_golden_examples.run, contents.model_path, signature, contents.golden, stated))
    except ImportError:
        if _unanswered(contents):
            raise MissingScores(contents.folder) from None
        return ""


def _unanswered(contents: Package) -> bool:
    return any(placeholders.is_placeholder(example.score) for example in contents.golden)


def golden_lines(model: run_golden_examples.LoadedOnnxModel, events: Sequence[dict[str, Any]]) -> str:
    """Return lines of golden.jsonl: each event with the score that the model gives to it in a batch of one.

    Events whose score has a number that is not finite are left out. Raises Refused if the model does not run.
    """
    scored = [(event, score) for event in events for score in model.answers([event]) if golden_examples.is_score(score)]
    lines = ({"event": event, "score": score, "tolerance": tolerance(score)} for event, score in scored)
    return "".join(msgspec.json.encode(line).decode() + "\n" for line in lines)


def golden_lines_from_file(model: Path, signature: Signature, stated: OnnxFile, events: Sequence[dict[str, Any]]) -> str:
    """Load a model, and return the result of `golden_lines` for it. Raises ImportError if ONNX Runtime is not installed.

    `stated` is the content of the file as `safety.check` returned it.
    """
    return golden_lines(run_golden_examples.LoadedOnnxModel(model, signature, stated), events)


def tolerance(score: Any) -> float:
    """Return the absolute tolerance for a score on another machine: 1e-4 times its largest number, but at least 1e-4."""
    return float(f"{CLOSE * max(1.0, _largest(score)):.0e}")


def _largest(score: Any) -> float:
    if isinstance(score, dict | list):
        return max(map(_largest, score.values() if isinstance(score, dict) else score), default=0.0)
    return abs(float(score)) if isinstance(score, int | float) else 0.0
