"""The protocols of backends and of open models, and their errors.

A backend opens the model of a package, in this process or on model servers. An open model computes outputs from tensors. Other
packages convert events to tensors, and outputs to scores.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from model_registry.package import Package
from model_registry.package.signature import Signature
from publisher.errors import USAGE, Fatal
from publisher.runtime.dependency_wait import MODEL_SERVERS, DependencyUnavailable
from publisher.runtime.watchdog import BROKEN

REMOTE = "remote"
"""The value of `Model.device` for models on servers, which do not report their hardware."""


class ModelRefused(Exception):
    """This scorer cannot serve a version: the model is broken or contradicts its signature, or a requirement is not met."""


class BackendMissing(Fatal):
    """The backend or the configured device is not available on this machine."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message, hint, USAGE)


class InferenceFailed(Exception):
    """The model returned no valid outputs for this batch. A smaller batch may succeed."""


class ModelBroken(Fatal):
    """The model can no longer score an event that it scored when it was loaded. The cause is the model, not the batch.

    This process ends with exit code 70.
    """

    # The next process treats this as a crash: it scores the events that were in flight in a sandbox process.

    def __init__(self, error: InferenceFailed) -> None:
        message = f"the model fails for an event that it answered when it was loaded: {error}"
        super().__init__(message, "check the model's device and the machine's memory", BROKEN)


class BackendUnavailable(DependencyUnavailable):
    """The model servers are unavailable. The same batch can be scored later."""

    def __init__(self, message: str, retry_seconds: float) -> None:
        super().__init__(
            MODEL_SERVERS, message, "start the servers of model.endpoints, or correct the addresses", retry_seconds
        )


class Model(Protocol):
    """An open model. Only one thread at a time may call a model. After an error, the model can be called again."""

    @property
    def device(self) -> str:
        """The device on which the model really runs: `cpu`, `cuda` or `tensorrt` in this process, or REMOTE."""

    def signature(self) -> Signature:
        """Return the signature of the package, or the signature derived from the model if the package has none.

        Raises:
            ModelRefused: the derived signature is ambiguous.
        """

    def run(self, tensors: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Compute the outputs of a batch.

        Args:
            tensors: the input tensors by name, without constant inputs. Each tensor is a (B, n) array with one row per event. A
                tensor whose rows vary in length is a (B,) object array. In this case the caller must pass only events that
                `LengthPlan.plan` has put into the same run. The model adds the constant inputs, and reshapes the rows as the
                signature declares.

        Returns:
            (B, ...) outputs by tensor name.

        Raises:
            InferenceFailed: the model returned no valid outputs.
            BackendUnavailable: the model servers are unavailable.
        """

    def close(self) -> None:
        """Free the model's resources."""


class Backend(Protocol):
    """Opens the models of packages. There is one backend for each runtime in this process and each kind of model server."""

    def open(self, package: Package) -> Model:
        """Open the model of a package.

        Raises:
            ModelRefused: the version cannot be served here.
            BackendUnavailable: a server did not answer, or was not ready in time.
        """


def check_rows(outputs: Mapping[str, Any], rows: int) -> None:
    """Check that each output is an array with `rows` rows, one for each event. Raises InferenceFailed if it is not."""
    for name, output in outputs.items():
        if not isinstance(output, np.ndarray) or output.ndim == 0 or len(output) != rows:
            raise InferenceFailed(f"output {name!r} has shape {np.shape(output)}, not one row for each of {rows} events")
