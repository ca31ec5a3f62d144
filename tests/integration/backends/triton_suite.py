"""The conformance suite on a real Triton."""

from collections.abc import Iterator

import pytest

from scorer.backends import Model
from tests.conformance.backend import Place
from tests.conformance.remote_backend import RemoteConformance
from tests.integration.backends.conftest import remote_place
from tests.integration.backends.under_load import UnderLoad


class TestTriton(RemoteConformance):
    """The Open Inference Protocol; its Python backend runs one request of a model at a time."""

    one_request_at_a_time = True

    @pytest.fixture(scope="class")
    @classmethod
    def place(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
        yield from remote_place("triton", tmp_path_factory.mktemp("triton"))

    def named(self, keeper: Model) -> dict[str, str]:
        return {"model": keeper.flight.remote.target.name}  # type: ignore[attr-defined]


class TestTritonUnderLoad(UnderLoad):
    """On the real broker."""

    kind = "triton"
