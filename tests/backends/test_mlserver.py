"""The conformance suite on a real MLServer."""

from collections.abc import Iterator

import pytest

from scorer.backends import Model
from tests.backends.conformance import Place
from tests.backends.conftest import remote_place
from tests.backends.remote_conformance import RemoteConformance


class TestMLServer(RemoteConformance):
    """The Open Inference Protocol."""

    @pytest.fixture(scope="class")
    @classmethod
    def place(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
        yield from remote_place("mlserver", tmp_path_factory.mktemp("mlserver"))

    def named(self, keeper: Model) -> dict[str, str]:
        return {"model": keeper.flight.remote.name}  # type: ignore[attr-defined]
