"""What is settled before a folder becomes a version: the model may be loaded, its signature is there, its examples hold, and
what it needs of a scorer is noted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from model_registry.errors import Refused
from model_registry.onnx import derive_signature as derive
from model_registry.onnx import golden_run as trial
from model_registry.onnx import requirements as needs
from model_registry.onnx import safety
from model_registry.package import folder as package


@dataclass(frozen=True, slots=True)
class Release:
    """What `package.push` is to add: files that the folder lacks, and annotations.

    `derived` says that the signature is one of these files; `ran` which ONNX Runtime answered the golden examples, "" where
    none is installed here or `remote`: the model is for a server, which the scorer asks before the version goes live.
    """

    more: Mapping[str, bytes]
    annotations: Mapping[str, str]
    examples: int
    derived: bool
    ran: str
    remote: bool = False


def prepare(folder: Path, *, devices: Sequence[str] = (), op_domains: Sequence[str] = ()) -> Release:
    """Check a folder. Raises Refused, Corrupt (no ONNX) and Underivable: the signature has to be written."""
    found = package.read(folder)
    if found.model_path.name != package.MODEL:
        if found.signature is None:
            raise Refused(
                f"{folder} has no {package.SIGNATURE}, which a model on a server needs", "write one: see deploy/backends.md"
            )
        return Release({}, {}, len(found.golden), derived=False, ran="", remote=True)
    model = safety.check(found.model_path, found.signature, op_domains)
    signature = found.signature or derive.derive(model.inputs, model.outputs)
    more = {} if found.signature else {package.SIGNATURE: signature.to_json().encode()}
    examples = package.read_golden(folder, signature)
    try:
        ran = trial.run(found.model_path, signature, examples)
    except ImportError:
        ran = ""
    return Release(more, needs.of(model, tuple(devices)).annotations(), len(examples), bool(more), ran)
