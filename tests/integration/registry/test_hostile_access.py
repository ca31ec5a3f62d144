"""A registry that is after credentials: redirects, realms and tokens."""

import json
from pathlib import Path

import pytest

from model_registry.errors import Corrupt, Refused, RegistryError, Unreachable
from model_registry.stores.oci_registry import RemoteStore
from tests.integration.registry.conftest import make
from tests.integration.registry.content import BLOB, CONTENT, DATA, MANIFEST
from tests.integration.registry.hostile import Hostile, Reply, Seen


def challenge(realm: str) -> Reply:
    return Reply(401, headers={"WWW-Authenticate": f'Bearer realm="{realm}",service="registry"'})


@pytest.fixture
def credentials(server: Hostile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Docker's configuration with a password for the registry: `user:secret`."""
    entry = {"auth": "dXNlcjpzZWNyZXQ="}
    (tmp_path / "config.json").write_text(json.dumps({"auths": {server.address: entry}}))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))


@pytest.mark.usefixtures("credentials")
def test_a_redirect_to_another_host_takes_no_credentials_along(store: RemoteStore, server: Hostile, elsewhere: Hostile) -> None:
    def script(seen: Seen) -> Reply:
        if "authorization" not in seen.headers:
            return Reply(401, headers={"WWW-Authenticate": 'Basic realm="x"'})
        return Reply(307, headers={"Location": f"http://{elsewhere.address}/storage"})

    server.script = script
    elsewhere.always(Reply(body=CONTENT))
    assert b"".join(store.blob(BLOB)) == CONTENT
    assert server.seen[-1].headers["authorization"] == "Basic dXNlcjpzZWNyZXQ="
    assert [seen.headers.get("authorization") for seen in elsewhere.seen] == [None]


@pytest.mark.parametrize(
    "target", ["http://example.com/x", "ftp://localhost/x", "file:///etc/passwd", "http://u:p@localhost/x"]
)
def test_a_redirect_that_is_not_followed(store: RemoteStore, server: Hostile, target: str) -> None:
    server.always(Reply(302, headers={"Location": target}))
    with pytest.raises(Refused, match="answers with the URL"):
        b"".join(store.blob(BLOB))


def test_a_redirect_in_circles(store: RemoteStore, server: Hostile) -> None:
    server.always(Reply(302, headers={"Location": "/v2/again"}))
    with pytest.raises(Refused, match="more than 5 times"):
        store.resolve("prod")
    assert len(server.seen) == 5


@pytest.mark.usefixtures("credentials")
def test_a_realm_that_is_allowed_gets_the_credentials_once(
    server: Hostile, naps: list[float], elsewhere: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL_REGISTRY_REALM_HOSTS", f"auth.example.com, {elsewhere.address}")
    store = make(server, naps)
    elsewhere.always(Reply(body=b'{"token": "abc"}'))
    challenged = challenge(f"http://{elsewhere.address}/token?x=1")
    server.script = lambda seen: Reply(body=DATA) if seen.headers.get("authorization") == "Bearer abc" else challenged
    for _ in range(3):
        assert store.resolve("prod").digest == MANIFEST.digest
    (token,) = elsewhere.seen
    assert token.path == "/token?x=1&service=registry&scope=repository%3Ateam%2Fx%3Apull"
    assert token.headers["authorization"] == "Basic dXNlcjpzZWNyZXQ="


@pytest.mark.parametrize(("answer", "error"), [(b"{}", Corrupt), (b"x", Corrupt), (b'{"token": "a\\r\\nX: y"}', Corrupt)])
def test_a_token_that_is_none(store: RemoteStore, server: Hostile, answer: bytes, error: type[RegistryError]) -> None:
    realm = challenge(f"http://{server.address}/token")
    server.script = lambda seen: Reply(body=answer) if seen.path.startswith("/token") else realm
    with pytest.raises(error, match="token"):
        store.resolve("prod")


def test_a_registry_that_is_never_content(store: RemoteStore, server: Hostile) -> None:
    realm = challenge(f"http://{server.address}/token")
    server.script = lambda seen: Reply(body=b'{"token": "abc"}') if seen.path.startswith("/token") else realm
    with pytest.raises(Unreachable, match="answered 401"):
        store.resolve("prod")
    assert len(server.seen) == 3
