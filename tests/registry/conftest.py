"""One real registry for the whole run, and what its tests push."""

import uuid
from collections.abc import Iterator

import pytest

from model_registry import reference
from model_registry.stores.options import StoreOptions
from model_registry.stores.remote import RemoteStore
from model_registry.stores.retry import Timing
from tests.registry.server import DockerRegistry, running
from tests.unit.registry.conftest import make_package

__all__ = ["make_package"]

AT_ONCE = Timing(sleep=lambda _: None)
PLAIN = StoreOptions(plain_http=True, timeout_seconds=10.0)


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerRegistry]:
    """Plain HTTP, no password."""
    with running(DockerRegistry(tmp_path_factory.mktemp("registry") / "plain")) as started:
        yield started


@pytest.fixture
def repository(registry: DockerRegistry) -> str:
    """A repository of the test's own that nobody has pushed to."""
    return f"{registry.address}/team/m{uuid.uuid4().hex[:12]}"


@pytest.fixture
def remote(repository: str) -> RemoteStore:
    """The store of that repository."""
    return RemoteStore(reference.parse(repository), PLAIN, AT_ONCE)
