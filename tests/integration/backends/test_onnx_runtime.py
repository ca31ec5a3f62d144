"""The conformance suite on ONNX Runtime."""

import pytest

from tests.conformance.backend import BackendConformance, Place


class TestOnnxRuntime(BackendConformance):
    """In this process, on the CPU."""

    @pytest.fixture(scope="class")
    @classmethod
    def place(cls, onnx_place: Place) -> Place:
        return onnx_place
