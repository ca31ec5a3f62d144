"""The remote store: the suite of all stores on a real registry, and what is particular to HTTP."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from model_registry.stores import Store
from model_registry.stores.remote import RemoteStore
from tests.registry.server import DockerRegistry
from tests.unit.registry.store_conformance import StoreConformance

pytestmark = pytest.mark.debian("docker-registry")


class TestRemoteStore(StoreConformance):
    MENDS = False  # the registry takes what it has under a digest for good

    @pytest.fixture(autouse=True)
    def _mended(self, registry: DockerRegistry) -> Iterator[None]:
        """All repositories share the registry's content: what a test damaged is mended after it."""
        self.registry, self.intact = registry, dict[Path, bytes]()
        yield
        for path, content in self.intact.items():
            path.write_bytes(content)

    @pytest.fixture
    def fresh(self, remote: RemoteStore) -> Store:
        return remote

    def damage(self, store: Store, digest: str, content: bytes) -> None:  # noqa: ARG002 - all repositories share content
        path = self.registry.blob(digest)
        self.intact[path] = path.read_bytes()
        path.write_bytes(content)
