"""The protocol of backends and their errors.

A backend opens the model of a package, in this process or on servers. An open model maps tensors to outputs. The conversion of
events to tensors, and of outputs to scores, is not part of this room.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from model_registry.package import Package
from model_registry.package.signature import Signature
from publisher.errors import USAGE, Fatal
from publisher.runtime.dependencies import MODEL_SERVERS, DependencyUnavailable
from publisher.runtime.watchdog import BROKEN


class ModelRefused(Exception):
    """This version cannot be served here: it is broken, contradicts its signature, or requires something that is missing."""


class BackendMissing(Fatal):
    """The backend or the configured device is not available on this machine."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message, hint, USAGE)


class InferenceFailed(Exception):
    """The model did not score this batch. A smaller batch may succeed."""


class ModelBroken(Fatal):
    """The model fails for an event that it answered when it was loaded, so no event is the cause.

    The process ends with code 70, and its successor scores the events in flight in a sandbox, as after a crash.
    """

    def __init__(self, error: InferenceFailed) -> None:
        message = f"the model fails for an event that it answered when it was loaded: {error}"
        super().__init__(message, "check the model's device and the machine's memory", BROKEN)


class BackendAway(DependencyUnavailable):
    """The model servers are unavailable. The same batch can be scored later."""

    def __init__(self, message: str, retry_seconds: float) -> None:
        super().__init__(
            MODEL_SERVERS, message, "start the servers of model.endpoints, or correct the addresses", retry_seconds
        )


class Model(Protocol):
    """An open model. Calls come from one thread at a time; after an error the model can be called again."""

    def signature(self) -> Signature:
        """Return the package's signature, or the derived one if the package has none.

        Raises:
            ModelRefused: the derived signature is ambiguous.
        """

    def run(self, tensors: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Score a batch.

        Args:
            tensors: (B, n) rows by the name of each tensor that events feed. Rows whose length varies are (B,) arrays, of
                one run (`LengthPlan.plan`). The model adds its constants and gives the rows the shapes of the signature.

        Returns:
            (B, ...) outputs by tensor name.

        Raises:
            InferenceFailed: the model did not answer.
            BackendAway: the model servers are unavailable.
        """

    def close(self) -> None:
        """Free the model's resources."""


class Backend(Protocol):
    """Opens models."""

    def open(self, package: Package) -> Model:
        """Load a package.

        Raises:
            ModelRefused: the version cannot be served here.
            BackendAway: a server did not answer, or was not ready in time.
        """


def check_rows(outputs: Mapping[str, Any], rows: int) -> None:
    """Raise InferenceFailed if an output is not an array of `rows` rows."""
    for name, output in outputs.items():
        if not isinstance(output, np.ndarray) or output.ndim == 0 or len(output) != rows:
            raise InferenceFailed(f"output {name!r} has shape {np.shape(output)}, not one row for each of {rows} events")
