"""The conformance suite on ONNX Runtime, in this process, on the CPU."""

import pytest

from scorer.settings.model import ModelSettings
from tests.conformance.backend import BackendConformance, Place
from tests.integration.backends import models


class TestOnnxRuntime(BackendConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def place(cls, tmp_path_factory: pytest.TempPathFactory) -> Place:
        return Place(ModelSettings(source="oci:."), tmp_path_factory.mktemp("onnx"), models.onnx_model)
