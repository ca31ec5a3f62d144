"""Behaviour of every backend with a server, in addition to `backend.py`: deadlines, unavailable servers, shared fleets."""

import json
import signal
import time
from collections.abc import Iterator
from typing import ClassVar

import pytest

from scorer.backends.base import Backend, BackendMissing, BackendUnavailable, InferenceFailed, Model, ModelRefused
from scorer.settings.model import ModelSettings
from tests.conformance.backend import BackendConformance, Place, same
from tests.integration.backends import models
from tests.integration.backends.models import Tensors
from tests.integration.backends.servers import KINDS, ModelServer
from tests.support.waiting import until

BOUND_SECONDS = 12.0  # no call of `run` takes longer, whatever the server does
DEADLINE_MS = 500


def run_until_answered(model: Model, inputs: Tensors) -> Tensors:
    """Repeat the same batch until the server answers, as a scorer does."""
    outputs: list[Tensors] = []

    def run_once() -> bool:
        try:
            outputs.append(model.run(inputs))
        except BackendUnavailable:
            return False
        return True

    until(run_once, "an answer", 30.0)
    return outputs[0]


class RemoteConformance(BackendConformance):
    """Start a server of this `kind` for the class."""

    kind: ClassVar[str]
    one_request_at_a_time = False  # whether an event that hangs blocks all other requests

    @pytest.fixture(scope="class")
    @classmethod
    def place(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
        kind, folder = KINDS[cls.kind], tmp_path_factory.mktemp(cls.kind)
        server = kind.server(folder / "served").start()
        stated = {
            "source": "oci:.",
            "backend": kind.backend,
            "endpoints": [server.address],
            "server_folder": server.folder,
            "deadline_ms": DEADLINE_MS,
            "load_seconds": 30,
        }
        packages = folder / "mixed"
        packages.mkdir()
        yield Place(ModelSettings.model_validate(stated), packages, kind.model, server)
        server.close()

    @pytest.fixture
    def server(self, place: Place) -> Iterator[ModelServer]:
        """Return the server. After the test, its effects are undone or the server is restarted."""
        assert place.server is not None
        yield place.server
        place.server.slow(0)
        place.server.signal(signal.SIGCONT)

    def test_a_killed_server_is_unavailable_and_has_its_versions_after_a_restart(
        self, model: Model, server: ModelServer
    ) -> None:
        inputs = models.tensors(1_200)
        server.kill()
        with pytest.raises(BackendUnavailable):
            model.run(inputs)
        server.start()
        same(run_until_answered(model, inputs), models.expected(inputs, 2.0))

    def test_a_stopped_server_is_reported_unavailable_within_bounds(self, model: Model, server: ModelServer) -> None:
        inputs = models.tensors(600)
        run_until_answered(model, inputs)
        server.signal(signal.SIGSTOP)
        began = time.monotonic()
        with pytest.raises(BackendUnavailable):
            model.run(inputs)
        assert time.monotonic() - began < BOUND_SECONDS
        server.signal(signal.SIGCONT)
        same(run_until_answered(model, inputs), models.expected(inputs, 2.0))

    def test_a_server_slower_than_the_deadline_is_unavailable_and_no_event_is_blamed(
        self, model: Model, server: ModelServer
    ) -> None:
        inputs = models.tensors(1)
        run_until_answered(model, inputs)
        server.slow(4 * DEADLINE_MS / 1_000)
        with pytest.raises(BackendUnavailable):
            model.run(inputs)
        server.slow(0)
        same(run_until_answered(model, inputs), models.expected(inputs, 2.0))

    def test_a_slow_server_still_answers(self, model: Model, server: ModelServer) -> None:
        inputs = models.tensors(1_200)
        run_until_answered(model, inputs)
        server.slow(DEADLINE_MS / 1_000 / 4)
        same(run_until_answered(model, inputs), models.expected(inputs, 2.0))

    def test_an_event_that_hangs_fails_or_makes_the_server_unavailable(self, model: Model, server: ModelServer) -> None:
        inputs = models.tensors(1)
        run_until_answered(model, inputs)
        hanging = {name: tensor.copy() for name, tensor in inputs.items()}
        hanging["x"][0, 0] = -666.0
        with pytest.raises(BackendUnavailable if self.one_request_at_a_time else InferenceFailed):
            model.run(hanging) if self.one_request_at_a_time else run_until_answered(model, hanging)
        same(run_until_answered(model, inputs), models.expected(inputs, 2.0))
        assert server.address

    def test_a_version_that_another_client_loaded_is_used_and_not_unloaded(self, place: Place, backend: Backend) -> None:
        keeper = backend.open(place.package(11.0, output=models.OUTPUTS))
        inputs = models.tensors(5)
        folder = models.folder(place.folder / "named", 11.0, output=models.OUTPUTS)
        (folder / "remote.json").write_text(json.dumps(self.named(keeper)))
        guest = backend.open(models.read(folder))
        same(guest.run(inputs), models.expected(inputs, 11.0))
        guest.close()
        same(keeper.run(inputs), models.expected(inputs, 11.0))
        keeper.close()

    def named(self, keeper: Model) -> dict[str, str]:
        """Return the `remote.json` of the version that `keeper` has loaded."""
        return {"model": keeper.flight.remote.target.name}  # type: ignore[attr-defined]

    def test_the_wait_for_a_version_that_no_server_has_ends_after_load_seconds(self, place: Place) -> None:
        folder = models.folder(place.folder / "absent", 1.0)
        (folder / "remote.json").write_text('{"model": "not-on-the-server"}')
        with pytest.raises(BackendUnavailable, match=r"after 0\.5 s"):
            place.backend(load_seconds=0.5).open(models.read(folder))

    def test_a_version_that_the_server_cannot_load_is_refused(
        self, place: Place, backend: Backend, server: ModelServer
    ) -> None:
        package = place.package(2.0)
        for path in package.model_path.rglob("*"):
            if path.is_file():
                path.write_bytes(b"damaged")
        before = set(server.folder.rglob("*"))
        with pytest.raises(ModelRefused):
            backend.open(package)
        assert set(server.folder.rglob("*")) <= before

    def test_a_closed_version_is_removed_from_the_server(self, place: Place, backend: Backend, server: ModelServer) -> None:
        folder = server.folder
        before = set(folder.rglob("*"))
        closed = backend.open(place.package(13.0))
        assert set(folder.rglob("*")) > before
        closed.close()
        assert set(folder.rglob("*")) <= before

    def test_a_backend_without_endpoints_names_the_setting(self, place: Place) -> None:
        with pytest.raises(BackendMissing, match=r"model\.endpoints"):
            place.backend(endpoints=[])

    def test_a_package_with_files_needs_the_servers_folder(self, place: Place) -> None:
        with pytest.raises(ModelRefused, match=r"model\.server_folder"):
            place.backend(server_folder=None).open(place.package(2.0))
