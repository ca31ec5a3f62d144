"""The checks before a folder becomes a version: the model may be loaded, its signature is known, its golden examples hold.

What the model requires of a scorer is noted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from model_registry import package
from model_registry.errors import Refused
from model_registry.onnx import derive_signature, golden_run, requirements, safety
from model_registry.package import Package


@dataclass(frozen=True, slots=True)
class Prepared:
    """A package that may be pushed, with the files that the folder lacks and the annotations that go with it.

    `derived`: the signature is one of these files. `ran` is the ONNX Runtime that answered the golden examples, "" where none
    is installed here or `remote`: the model is for a server, which the scorer asks before the version goes live.
    """

    package: Package
    more: Mapping[str, bytes]
    annotations: Mapping[str, str]
    derived: bool = False
    ran: str = ""
    remote: bool = False


def prepare(folder: Path, *, devices: Sequence[str] = (), op_domains: Sequence[str] = ()) -> Prepared:
    """Check a folder. Raises Refused, Corrupt (no ONNX) and Underivable: the signature has to be written."""
    path, stated = package.find_model(folder), package.read_signature(folder)
    if path.name != package.MODEL:
        if stated is None:
            raise Refused(
                f"{folder} has no {package.SIGNATURE}, which a model on a server needs", "write one: see deploy/backends.md"
            )
        return Prepared(package.read(folder, stated), {}, {}, remote=True)
    model = safety.check(path, stated, op_domains)
    signature = stated or derive_signature.derive(model.inputs, model.outputs)
    found = package.read(folder, signature)
    try:
        ran = golden_run.run(path, signature, found.golden, model)
    except ImportError:
        ran = ""
    more = {} if stated else {package.SIGNATURE: signature.to_json().encode()}
    return Prepared(found, more, requirements.of(model, tuple(devices)), stated is None, ran)
