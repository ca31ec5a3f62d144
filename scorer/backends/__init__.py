"""Where a model runs, behind one small protocol.

A backend opens the model of a package, in this process or on servers; an open model turns tensors into outputs. What a request
carries and how outputs are read is the signature's affair, so a backend knows tensors only.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from model_registry.package import Package
from model_registry.package.signature import Signature
from publisher.errors import USAGE, Fatal
from publisher.runtime.dependencies import MODEL_SERVERS, Away
from publisher.runtime.watchdog import BROKEN
from scorer.settings.model import ModelSettings


class ModelRefused(Exception):
    """This version cannot be served here: broken, not matching its signature, or needing what is not there."""


class BackendMissing(Fatal):
    """The backend, or the device asked for, is not on this machine. `hint` is the way out."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message, hint, USAGE)


class InferenceFailed(Exception):
    """The model did not answer this batch; a smaller one may succeed."""


class ModelBroken(Fatal):
    """The model fails at what it answered when it was loaded: no event is to blame by itself. The process ends (70), and its
    successor examines what was in hand, as after a death."""

    def __init__(self, error: InferenceFailed) -> None:
        message = f"the model fails at an event that it answered when it was loaded: {error}"
        super().__init__(message, "see what is wrong with its device, or with the machine's memory", BROKEN)


class BackendAway(Away):
    """The servers that hold the model do not answer. The same batch can be scored later: nothing is wrong with its events."""

    def __init__(self, message: str, retry_seconds: float) -> None:
        super().__init__(
            MODEL_SERVERS, message, "start the servers of model.endpoints, or correct the addresses", retry_seconds
        )


class Model(Protocol):
    def signature(self) -> Signature:
        """The package's signature, or the one derived where it has none. Raises ModelRefused where it is ambiguous."""

    def run(self, tensors: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """(B, n) rows by the name of each tensor that events feed, to (B, ...) outputs by tensor name. The model has the rows
        in the shapes of the signature, and its constants beside them. Rows whose length varies are (B,) arrays, those of one
        run (`Lengths.runs`). Raises InferenceFailed and BackendAway."""

    def close(self) -> None:
        """Free what the model holds."""


class Backend(Protocol):
    def open(self, package: Package) -> Model:
        """Load a package. Raises ModelRefused, and BackendAway where a server did not answer or was not ready in time."""


def check_rows(outputs: Mapping[str, Any], rows: int) -> None:
    """Raises InferenceFailed where an output is no array of `rows` rows."""
    for name, output in outputs.items():
        if not isinstance(output, np.ndarray) or output.ndim == 0 or len(output) != rows:
            raise InferenceFailed(f"output {name!r} has shape {np.shape(output)}, not one row for each of {rows} events")


def find(model: ModelSettings) -> Backend:
    """The backend of a configuration. Raises BackendMissing."""
    if model.backend == "tf-serving":  # each import asks for an optional dependency
        from scorer.backends.remote.tf_serving import TensorFlowServing

        return TensorFlowServing(model)
    if model.backend == "open-inference":
        from scorer.backends.remote.open_inference import OpenInference

        return OpenInference(model)
    from scorer.backends.onnx.onnx_runtime import OnnxRuntime

    return OnnxRuntime(model)
