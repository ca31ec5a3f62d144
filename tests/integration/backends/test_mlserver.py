"""The conformance suite on a real MLServer."""

from collections.abc import Iterator

import pytest

from scorer.backends import Model
from tests.conformance.backend import Place, same
from tests.conformance.remote_backend import RemoteConformance
from tests.integration.backends import models
from tests.integration.backends.conftest import remote_place
from tests.integration.backends.servers import KINDS


class TestMLServer(RemoteConformance):
    """The Open Inference Protocol."""

    @pytest.fixture(scope="class")
    @classmethod
    def place(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
        yield from remote_place("mlserver", tmp_path_factory.mktemp("mlserver"))

    def named(self, keeper: Model) -> dict[str, str]:
        return {"model": keeper.flight.remote.target.name}  # type: ignore[attr-defined]

    def test_one_of_two_servers_is_enough(self, place: Place) -> None:
        assert place.server is not None
        assert place.settings.server_folder is not None
        second = KINDS["mlserver"].server(place.settings.server_folder).start()
        try:
            backend = place.backend(endpoints=[place.server.address, second.address])
            model = backend.open(place.package(2.0, output=models.OUTPUTS))
            given = models.tensors(3_000)
            same(model.run(given), models.expected(given, 2.0))
            second.kill()
            for _ in range(5):
                same(model.run(given), models.expected(given, 2.0))
            second.start()
            for _ in range(100):
                same(model.run(given), models.expected(given, 2.0))
                if not model.flight.endpoints.complaint():  # type: ignore[attr-defined]
                    break
            else:
                raise AssertionError("the second server was not taken in again")
            model.close()
        finally:
            second.close()
