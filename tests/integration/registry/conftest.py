"""One real registry for the whole run; registries that lie, and stores of them whose waits take no time."""

import io
import uuid
from collections.abc import Callable, Iterator

import pytest

from model_registry.oci import reference
from model_registry.signing import signatures
from model_registry.stores.base import StoreOptions
from model_registry.stores.oci_registry import RemoteStore
from model_registry.stores.retry import Timing
from tests.conformance.store import described
from tests.integration.registry.hostile import Hostile, hostile
from tests.integration.registry.quirks import Clock, Quirks, Registry
from tests.integration.registry.server import DockerRegistry, running
from tests.unit.model_registry.conftest import make_package
from tests.unit.model_registry.keyring import NOW, ONE, trusted, version

__all__ = ["make_package"]

Start = Callable[..., tuple[RemoteStore, Registry]]
AT_ONCE = Timing(sleep=lambda _: None)
PLAIN = StoreOptions(plain_http=True, timeout_seconds=10.0)


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerRegistry]:
    with running(DockerRegistry(tmp_path_factory.mktemp("registry") / "plain")) as started:
        yield started


@pytest.fixture
def repository(registry: DockerRegistry) -> str:
    return f"{registry.address}/team/m{uuid.uuid4().hex[:12]}"


@pytest.fixture
def remote(repository: str) -> RemoteStore:
    return RemoteStore(reference.parse(repository), PLAIN, AT_ONCE)


def away(store: RemoteStore) -> RemoteStore:
    path = store.repository.partition("/")[2]
    return RemoteStore(reference.parse(f"localhost:1/{path}"), StoreOptions(plain_http=True, timeout_seconds=0.1), AT_ONCE)


@pytest.fixture
def server() -> Iterator[Hostile]:
    with hostile() as started:
        yield started


@pytest.fixture
def elsewhere() -> Iterator[Hostile]:
    with hostile() as started:
        yield started


@pytest.fixture
def naps() -> list[float]:
    """The waits of the store in seconds; no time passes in them."""
    return []


@pytest.fixture
def store(server: Hostile, naps: list[float]) -> RemoteStore:
    return make(server, naps)


def make(server: Hostile, naps: list[float], timeout_seconds: float = 10.0) -> RemoteStore:
    stated = StoreOptions(plain_http=True, timeout_seconds=timeout_seconds)
    return RemoteStore(reference.parse(f"{server.address}/team/x"), stated, Timing(sleep=naps.append))


@pytest.fixture
def start(server: Hostile) -> Start:
    """start(lag=1.0) serves an empty registry with these quirks; its store, whose waits take no time, and the registry."""

    def begin(**quirks: object) -> tuple[RemoteStore, Registry]:
        clock = Clock()
        registry = Registry(Quirks(**quirks), clock, server.address)  # type: ignore[arg-type]
        server.script = registry
        return opened(server, clock), registry

    return begin


def opened(server: Hostile, clock: Clock) -> RemoteStore:
    options = StoreOptions(plain_http=True, timeout_seconds=30.0)
    return RemoteStore(reference.parse(f"{server.address}/team/x"), options, Timing(clock.read, clock.sleep))


def push(store: RemoteStore, data: bytes) -> None:
    store.push_blob(described(data), io.BytesIO(data))


def sign_and_verify(store: RemoteStore) -> None:
    """Sign a version, and find the signature as a scorer does, with a store of its own."""
    subject = version(store)
    signatures.sign(store, subject, ONE, NOW)
    signatures.verify(store, subject, trusted(ONE), NOW)
