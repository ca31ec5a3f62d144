"""A real registry that is killed at every step of a push and of a pull: nothing half-made is seen, the next try succeeds."""

import io
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from model_registry import package
from model_registry.errors import NotFound, Unreachable
from model_registry.oci import reference
from model_registry.oci.manifest import Descriptor
from model_registry.stores.oci_registry import RemoteStore
from model_registry.stores.retry import Timing
from model_registry.stores.upload import WHOLE_BYTES
from tests.conformance.store import described
from tests.integration.registry.conftest import AT_ONCE, PLAIN
from tests.integration.registry.content import OneWay
from tests.integration.registry.server import DockerRegistry, running

pytestmark = pytest.mark.debian("docker-registry")


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerRegistry]:
    with running(DockerRegistry(tmp_path_factory.mktemp("mortal") / "registry")) as started:
        yield started


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A package whose model is sent as a stream."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "model.onnx").write_bytes(random.randbytes(WHOLE_BYTES + 1))
    return tmp_path / "package"


def counted(registry: DockerRegistry, repository: str, kill_at: int | None) -> tuple[RemoteStore, list[str]]:
    """A store, and the requests that it has sent; the registry is killed before the one with this number is."""
    store, requests = RemoteStore(reference.parse(f"{registry.address}/{repository}"), PLAIN, AT_ONCE), list[str]()

    def count(request: httpx.Request) -> None:
        if len(requests) == kill_at:
            registry.kill()
        requests.append(f"{request.method} {request.url.path}")

    store._client._client.event_hooks = {"request": [count]}
    return store, requests


def test_killed_at_every_request_of_a_push(mortal: DockerRegistry, folder: Path, tmp_path: Path) -> None:
    store, requests = counted(mortal, "push/whole", None)
    package.push(store, folder, "x", "1.0.0")
    assert any(request.startswith("PATCH") for request in requests)
    for step in range(len(requests)):
        store, _ = counted(mortal, f"push/step{step}", step)
        with pytest.raises(Unreachable):
            package.push(store, folder, "x", "1.0.0")
        mortal.start()
        fresh, _ = counted(mortal, f"push/step{step}", None)
        if "1.0.0" in fresh.tags():  # killed after the tag was written: then all of it is there
            package.pull(fresh, fresh.resolve("1.0.0").digest, tmp_path / f"early{step}")
        pushed = package.push(fresh, folder, "x", "1.0.0")
        pulled = package.pull(fresh, pushed.digest, tmp_path / f"late{step}")
        assert pulled.model_path.read_bytes() == (folder / "model.onnx").read_bytes()


def test_killed_at_every_request_of_a_pull(mortal: DockerRegistry, folder: Path, tmp_path: Path) -> None:
    store, _ = counted(mortal, "pull", None)
    pushed = package.push(store, folder, "x", "1.0.0")
    store, requests = counted(mortal, "pull", None)
    package.pull(store, pushed.digest, tmp_path / "whole")
    for step in range(len(requests)):
        store, _ = counted(mortal, "pull", step)
        with pytest.raises(Unreachable):
            package.pull(store, pushed.digest, tmp_path / f"step{step}")
        assert not list(tmp_path.glob(f"step{step}/*"))
        mortal.start()
        package.pull(store, pushed.digest, tmp_path / f"step{step}")


def resurrecting(registry: DockerRegistry) -> Timing:
    return Timing(sleep=lambda _: registry.start())


def test_killed_in_the_middle_of_a_stream_and_started_again(mortal: DockerRegistry) -> None:
    data = random.randbytes(8 * WHOLE_BYTES)
    content, killed = described(data), list[int]()

    def kill_halfway(_: Descriptor, sent_bytes: int) -> None:
        if sent_bytes > len(data) // 2 and not killed:
            killed.append(sent_bytes)
            mortal.kill()

    options = replace(PLAIN, progress=kill_halfway)
    store = RemoteStore(reference.parse(f"{mortal.address}/stream"), options, resurrecting(mortal))
    store.push_blob(content, io.BytesIO(data))
    assert killed
    killed.clear()
    assert b"".join(store.blob(content)) == data
    assert killed


def test_a_stream_that_cannot_be_read_twice_is_not_continued(mortal: DockerRegistry) -> None:
    data = random.randbytes(2 * WHOLE_BYTES)

    class Killing(OneWay):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() == WHOLE_BYTES:
                mortal.kill()
            return super().read(size)

    store = RemoteStore(reference.parse(f"{mortal.address}/oneway"), PLAIN, resurrecting(mortal))
    with pytest.raises(Unreachable, match="cannot be read twice"):
        store.push_blob(described(data), Killing(data))
    assert not store.has_blob(described(data).digest)
    with pytest.raises(NotFound):
        b"".join(store.blob(described(data)))
