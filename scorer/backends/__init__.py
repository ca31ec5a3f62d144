"""Where a model runs, behind one small protocol.

A backend opens the model of a package; an open model turns tensors into outputs. What a request carries and how outputs are
read is the signature's affair, so a backend knows tensors only.
"""

from collections.abc import Collection
from typing import Any, Protocol

from numpy.typing import NDArray

from model_registry.package import Package
from model_registry.signature import Signature


class ModelRefused(Exception):
    """This version cannot be served here: broken, not matching its signature, or needing what is not there."""


class BackendMissing(Exception):
    """The backend, or the device asked for, is not on this machine. `hint` is the way out."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class Model(Protocol):
    """An open model."""

    def signature(self) -> Signature:
        """The package's signature, or the one derived where it has none. Raises ModelRefused where it is ambiguous."""
        ...

    def run(self, tensors: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """(B, n) inputs by tensor name to (B, ...) outputs by tensor name. Raises InferenceFailed."""
        ...

    def close(self) -> None:
        """Free what the model holds."""
        ...


class InferenceFailed(Exception):
    """The model did not answer this batch; a smaller one may succeed."""


class Backend(Protocol):
    """Opens models."""

    def open(self, package: Package) -> Model:
        """Load a package. Raises ModelRefused."""
        ...


def find(name: str, device: str, op_domains: Collection[str] = ()) -> Backend:
    """The backend of a configuration; `op_domains` are those that a model may use beside ONNX's own. Raises BackendMissing."""
    from scorer.backends.onnx_runtime import OnnxRuntime  # the import asks for an optional dependency

    if name != "onnx-runtime":
        raise BackendMissing(f"no backend is named {name!r}", "use onnx-runtime")
    return OnnxRuntime(device, op_domains)
