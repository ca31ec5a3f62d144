"""The conformance suite on a real MLServer."""

from tests.conformance.backend import Place, same
from tests.conformance.remote_backend import RemoteConformance
from tests.integration.backends import models
from tests.integration.backends.servers import KINDS, ModelServer


class TestMLServer(RemoteConformance):
    kind = "mlserver"

    def test_one_of_two_servers_is_enough(self, place: Place, server: ModelServer) -> None:
        second = KINDS["mlserver"].server(server.folder).start()
        try:
            backend = place.backend(endpoints=[server.address, second.address])
            model = backend.open(place.package(2.0, output=models.OUTPUTS))
            inputs = models.tensors(3_000)
            same(model.run(inputs), models.expected(inputs, 2.0))
            second.kill()
            for _ in range(5):
                same(model.run(inputs), models.expected(inputs, 2.0))
            second.start()
            for _ in range(100):
                same(model.run(inputs), models.expected(inputs, 2.0))
                if not model.flight.endpoints.describe_faults():  # type: ignore[attr-defined]
                    break
            else:
                raise AssertionError("the second server was not taken in again")
            model.close()
        finally:
            second.close()
