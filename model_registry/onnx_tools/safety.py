"""Checks an ONNX model before it is loaded: its external data, its operators, and whether its signature fits.

Only the structure of the file is read.
"""

# A model file can make a runtime do three dangerous things when it is loaded: read external data from any path, read memory of
# the process (if this path has a certain form), and call any library that is registered for an operator's domain.

from collections.abc import Collection
from pathlib import Path

from model_registry import atomic_files
from model_registry.atomic_files import is_confined
from model_registry.default_limits import DEFAULT_DOMAINS
from model_registry.errors import Refused
from model_registry.onnx_tools import declared_tensors, onnx_reader
from model_registry.onnx_tools.onnx_reader import External, OnnxFile
from model_registry.package.signature import Signature

OLDEST_OPSET = 7  # the oldest opset that ONNX Runtime promises to run (onnxruntime.ai/docs/reference/compatibility)
MEMORY = "_ORT_MEM_ADDR_"  # if the path contains this, ONNX Runtime takes the offset as a memory address of the process
STANDARD = ("", "ai.onnx.ml")


def check(model: Path, signature: Signature | None, domains: Collection[str] = DEFAULT_DOMAINS) -> OnnxFile:
    """Check that a model may be loaded, and return the content of its file without the weights.

    Args:
        model: The ONNX file. The folder of the file is the package, in which external data must be.
        signature: The signature that must fit the model's inputs and outputs; None skips this check.
        domains: The operator domains that are allowed in addition to the standard ones.

    Raises:
        Corrupt: The file is not an ONNX file.
        Refused: External data is outside the package, an operator's domain is not allowed, the opset is too old, or the
            signature does not fit.
    """
    onnx_file = onnx_reader.read(model)
    for external in onnx_file.external:
        if fault := _external_fault(model, external):
            raise Refused(
                f"{model.name} keeps weights in {external.location!r:.200}: {fault}",
                "save the model with its weights inside the ONNX file",
            )
    if fault := operator_fault(onnx_file, domains):
        raise Refused(f"{model.name} {fault}", "model.op_domains lists the domains that a scorer allows")
    if signature and (fault := declared_tensors.find_fault(signature, onnx_file.inputs, onnx_file.outputs)):
        raise Refused(fault, "signature.json and model.onnx must belong together")
    return onnx_file


def _external_fault(model: Path, external: External) -> str | None:
    """Return the reason why external weights must not be read; None if they may be read."""
    if not is_confined(external.location) or MEMORY in external.location:
        return "the location is not a plain path inside the package"
    size = _size(model, external.location)
    if size is None or any(part.startswith(".") for part in external.location.split("/")):
        return "the package has no such file"
    if external.offset < 0 or (external.length or 0) < 0 or external.offset + (external.length or 0) > size:
        end = external.offset + (external.length or 0)
        return f"the weights are bytes {external.offset} to {end}, but the file has {size} bytes"
    return None


def operator_fault(model: OnnxFile, domains: Collection[str]) -> str | None:
    """Return a message about an operator or opset of the model that is not allowed; None if all are allowed."""
    opset = model.opsets.get("")
    if opset is not None and opset < OLDEST_OPSET:
        return f"has opset {opset}; the oldest supported opset is {OLDEST_OPSET}"
    allowed = {*STANDARD, *domains}
    for domain, name in sorted(model.operators - model.functions):
        if domain not in allowed:
            return f"uses the operator {name!r:.100} of domain {domain!r:.100}, which is not allowed"
    return None


def _size(model: Path, location: str) -> int | None:
    """Return the size of a file in the model's folder in bytes; None if the file is missing or its path has a symbolic link."""
    path = model.parent / location
    with atomic_files.report_os_errors(f"the package {model.parent}"):
        regular = path.is_file() and path.resolve() == model.parent.resolve() / location and path != model
        return path.stat().st_size if regular else None
