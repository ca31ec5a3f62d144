"""A model whose events have lengths of their own, on any backend: a run for each group of a batch."""

from typing import Any

from numpy.typing import NDArray

from model_registry.package.lengths import Lengths, together
from model_registry.package.signature import Signature
from scorer.backends import InferenceFailed, Model


class Grouped:
    """See `Model`. Events of nearly one length are run together, so that a long one does not pad the short ones."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._lengths = Lengths(model.signature())

    def signature(self) -> Signature:
        return self._model.signature()

    def run(self, tensors: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The outputs in the order of the events, whichever were run together."""
        try:
            return together(self._lengths, tensors, self._model.run)
        except ValueError as error:
            raise InferenceFailed(str(error)) from error

    def close(self) -> None:
        self._model.close()


def grouped(model: Model) -> Model:
    """The model as it is, unless lengths vary in its signature."""
    return Grouped(model) if model.signature().varies else model
