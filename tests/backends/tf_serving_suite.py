"""The conformance suite on a stand-in for TensorFlow Serving that runs real SavedModels; see served/BEHAVIOURS.md."""

from collections.abc import Iterator

import pytest

from scorer.backends import Model
from tests.backends.conformance import Place
from tests.backends.conftest import remote_place
from tests.backends.remote_conformance import RemoteConformance
from tests.backends.under_load import UnderLoad


class TestTensorFlowServing(RemoteConformance):
    """PredictionService and ModelService."""

    @pytest.fixture(scope="class")
    @classmethod
    def place(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
        yield from remote_place("tf-serving", tmp_path_factory.mktemp("tf"))

    def named(self, keeper: Model) -> dict[str, str]:
        name, version = keeper.flight.remote.name.split(":")  # type: ignore[attr-defined]
        return {"model": name, "version": version}


class TestTensorFlowServingUnderLoad(UnderLoad):
    """On the real broker."""

    kind = "tf-serving"
