"""The conformance suite and faults under load on a real Triton."""

from tests.conformance.remote_backend import RemoteConformance
from tests.integration.backends.under_load import UnderLoad


class TestTriton(RemoteConformance):
    """The Open Inference Protocol; its Python backend runs one request of a model at a time."""

    kind = "triton"
    one_request_at_a_time = True


class TestTritonUnderLoad(UnderLoad):
    kind = "triton"
