"""What every backend with a server does beside `backend.py`: deadlines, servers that are away, shared fleets."""

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


def answered(model: Model, given: Tensors) -> Tensors:
    """What a scorer does: the same batch again until the server answers."""
    found: list[Tensors] = []

    def once() -> bool:
        try:
            found.append(model.run(given))
        except BackendUnavailable:
            return False
        return True

    until(once, "an answer", 30.0)
    return found[0]


class RemoteConformance(BackendConformance):
    """A server of its own for the class, of this `kind`."""

    kind: ClassVar[str]
    one_request_at_a_time = False  # whether an event that hangs keeps the server from every other

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
        """The server; whatever a test did to it is undone, or it is started again."""
        assert place.server is not None
        yield place.server
        place.server.slow(0)
        place.server.signal(signal.SIGCONT)

    def test_a_server_that_was_killed_is_away_and_has_its_versions_again_when_it_is_back(
        self, model: Model, server: ModelServer
    ) -> None:
        given = models.tensors(1_200)
        server.kill()
        with pytest.raises(BackendUnavailable):
            model.run(given)
        server.start()
        same(answered(model, given), models.expected(given, 2.0))

    def test_a_stopped_server_is_away_within_bounds(self, model: Model, server: ModelServer) -> None:
        given = models.tensors(600)
        answered(model, given)
        server.signal(signal.SIGSTOP)
        began = time.monotonic()
        with pytest.raises(BackendUnavailable):
            model.run(given)
        assert time.monotonic() - began < BOUND_SECONDS
        server.signal(signal.SIGCONT)
        same(answered(model, given), models.expected(given, 2.0))

    def test_a_server_slower_than_the_deadline_is_away_and_no_event_is_blamed(self, model: Model, server: ModelServer) -> None:
        given = models.tensors(1)
        answered(model, given)
        server.slow(4 * DEADLINE_MS / 1_000)
        with pytest.raises(BackendUnavailable):
            model.run(given)
        server.slow(0)
        same(answered(model, given), models.expected(given, 2.0))

    def test_a_slow_server_still_answers(self, model: Model, server: ModelServer) -> None:
        given = models.tensors(1_200)
        answered(model, given)
        server.slow(DEADLINE_MS / 1_000 / 4)
        same(answered(model, given), models.expected(given, 2.0))

    def test_an_event_that_hangs_is_found_or_keeps_the_server_away(self, model: Model, server: ModelServer) -> None:
        given = models.tensors(1)
        answered(model, given)
        guilty = {name: tensor.copy() for name, tensor in given.items()}
        guilty["x"][0, 0] = -666.0
        with pytest.raises(BackendUnavailable if self.one_request_at_a_time else InferenceFailed):
            model.run(guilty) if self.one_request_at_a_time else answered(model, guilty)
        same(answered(model, given), models.expected(given, 2.0))
        assert server.address

    def test_a_version_that_others_keep_is_used_and_left_alone(self, place: Place, backend: Backend) -> None:
        keeper = backend.open(place.package(11.0, output=models.OUTPUTS))
        given = models.tensors(5)
        folder = models.folder(place.folder / "named", 11.0, output=models.OUTPUTS)
        (folder / "remote.json").write_text(json.dumps(self.named(keeper)))
        guest = backend.open(models.read(folder))
        same(guest.run(given), models.expected(given, 11.0))
        guest.close()
        same(keeper.run(given), models.expected(given, 11.0))
        keeper.close()

    def named(self, keeper: Model) -> dict[str, str]:
        """`remote.json` for what `keeper` has loaded."""
        return {"model": keeper.flight.remote.target.name}  # type: ignore[attr-defined]

    def test_a_version_that_nobody_keeps_is_not_waited_for_longer_than_asked(self, place: Place) -> None:
        folder = models.folder(place.folder / "nobody", 1.0)
        (folder / "remote.json").write_text('{"model": "nobody-has-this"}')
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

    def test_a_closed_version_is_gone_from_the_server(self, place: Place, backend: Backend, server: ModelServer) -> None:
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
