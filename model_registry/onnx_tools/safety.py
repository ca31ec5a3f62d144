"""Checks an ONNX model before anything loads it: the files it reads, the operators it runs, and the fit of its signature.

A loader follows a model's external data to any path, reads memory if the path has a certain form, and calls any library that
claims an operator's domain. All three are therefore checked here, on the file's structure alone.
"""

from collections.abc import Collection
from pathlib import Path

from model_registry import atomic_files
from model_registry.atomic_files import is_confined
from model_registry.default_limits import DEFAULT_DOMAINS
from model_registry.errors import Refused
from model_registry.onnx_tools import file, tensors
from model_registry.onnx_tools.file import External, OnnxFile
from model_registry.package.signature import Signature

OLDEST_OPSET = 7  # the first that ONNX Runtime promises to run (onnxruntime.ai/docs/reference/compatibility)
MEMORY = "_ORT_MEM_ADDR_"  # in ONNX Runtime such a path means: the offset is an address in this process
STANDARD = ("", "ai.onnx.ml")


def check(model: Path, signature: Signature | None, domains: Collection[str] = DEFAULT_DOMAINS) -> OnnxFile:
    """Return the facts of a file if it may be loaded. The files in its folder are those of its package.

    Raises:
        Corrupt: The file is not an ONNX file.
        Refused: External data is outside the package, an operator's domain is not allowed, no runtime supports the opset, or
        the signature does not fit the inputs or outputs.
    """
    onnx_file = file.read(model)
    for external in onnx_file.external:
        if fault := _external_fault(model, external):
            raise Refused(
                f"{model.name} keeps weights in {external.location!r:.200}: {fault}", "save it with its weights inside"
            )
    if fault := operator_fault(onnx_file, domains):
        raise Refused(f"{model.name} {fault}", "model.op_domains lists the domains that a scorer allows")
    if signature and (fault := tensors.find_fault(signature, onnx_file.inputs, onnx_file.outputs)):
        raise Refused(fault, "signature.json and model.onnx must belong together")
    return onnx_file


def _external_fault(model: Path, external: External) -> str | None:
    """Return why weights must not be read from a location, or None if they may."""
    if not is_confined(external.location) or MEMORY in external.location:
        return "that is no plain path inside the package"
    size = _size(model, external.location)
    if size is None or any(part.startswith(".") for part in external.location.split("/")):
        return "the package has no such file"
    if external.offset < 0 or (external.length or 0) < 0 or external.offset + (external.length or 0) > size:
        return f"bytes {external.offset} to {external.offset + (external.length or 0)} of {size}"
    return None


def operator_fault(model: OnnxFile, domains: Collection[str]) -> str | None:
    """Return which operator or opset is not allowed, or None if all are."""
    opset = model.opsets.get("")
    if opset is not None and opset < OLDEST_OPSET:
        return f"has opset {opset}; the oldest that is run is {OLDEST_OPSET}"
    allowed = {*STANDARD, *domains}
    for domain, name in sorted(model.operators - model.functions):
        if domain not in allowed:
            return f"uses the operator {name!r:.100} of domain {domain!r:.100}, which is not allowed"
    return None


def _size(model: Path, location: str) -> int | None:
    """Return the size of a file in the model's folder in bytes; None if it is missing, or if its path has a link."""
    path = model.parent / location
    with atomic_files.report_os_errors(f"the package {model.parent}"):
        regular = path.is_file() and path.resolve() == model.parent.resolve() / location and path != model
        return path.stat().st_size if regular else None
