"""A real registry that wants tokens: it sends its users to a realm, which signs what they may do (RFC 7519)."""

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils

from model_registry.errors import Unreachable
from model_registry.oci import reference
from model_registry.stores.base import StoreOptions
from model_registry.stores.oci_registry import RemoteStore
from tests.conformance.store import CONTENT, described, put, put_manifest
from tests.integration.registry.conftest import AT_ONCE
from tests.integration.registry.hostile import Hostile, Reply, Seen, hostile
from tests.integration.registry.server import DockerRegistry, Tokens, running

pytestmark = pytest.mark.debian("docker-registry")


class Realm:
    """A token server on the Hostile one: grants what `grants` says of each scope asked for."""

    def __init__(self, server: Hostile, authority: trustme.CA) -> None:
        self.server, self.grants = server, {"team/x": {"pull", "push"}}
        key = serialization.load_pem_private_key(authority.private_key_pem.bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        certificate = x509.load_pem_x509_certificate(authority.cert_pem.bytes())
        self._key, self._der = key, certificate.public_bytes(serialization.Encoding.DER)
        server.script = self.answer

    @property
    def asked(self) -> list[list[str]]:
        return [parse_qs(urlsplit(seen.path).query)["scope"] for seen in self.server.seen]

    def answer(self, seen: Seen) -> Reply:
        access = []
        for scope in parse_qs(urlsplit(seen.path).query).get("scope", []):
            kind, name, actions = scope.split(":")
            granted = sorted(self.grants.get(name, set()) & set(actions.split(",")))
            access.append({"type": kind, "name": name, "actions": granted})
        return Reply(body=json.dumps({"token": self.token(access)}).encode())

    def token(self, access: list[dict[str, Any]]) -> str:
        now = int(time.time())
        head = {"typ": "JWT", "alg": "ES256", "x5c": [base64.b64encode(self._der).decode()]}
        claims = {"iss": "test", "aud": "registry", "iat": now, "nbf": now - 5, "exp": now + 300, "access": access}
        signed = f"{encoded(json.dumps(head).encode())}.{encoded(json.dumps(claims).encode())}"
        r, s = utils.decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{signed}.{encoded(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DockerRegistry, Realm]]:
    folder: Path = tmp_path_factory.mktemp("bearer")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "roots.pem")
    with hostile() as server:
        tokens = Tokens(f"http://{server.address}/token", folder / "roots.pem")
        with running(DockerRegistry(folder / "registry", tokens=tokens)) as registry:
            yield registry, Realm(server, authority)


def store(registry: DockerRegistry, name: str, *mounts: str) -> RemoteStore:
    options = StoreOptions(plain_http=True, mount_from=mounts)
    return RemoteStore(reference.parse(f"{registry.address}/{name}"), options, AT_ONCE)


@pytest.fixture(autouse=True)
def allowed(realm: tuple[DockerRegistry, Realm], monkeypatch: pytest.MonkeyPatch) -> None:
    """The realm may ask for credentials."""
    monkeypatch.setenv("MODEL_REGISTRY_REALM_HOSTS", realm[1].server.address)


def test_a_token_for_each_scope_is_fetched_once_and_missing_grants_are_reported(realm: tuple[DockerRegistry, Realm]) -> None:
    registry, tokens = realm
    tokens.grants |= {"team/y": {"pull", "push"}, "team/z": {"pull"}}
    opened = store(registry, "team/x")
    content = put(opened, CONTENT)
    opened.move_tags({"prod": put_manifest(opened, "one")}, expect={"prod": None})
    assert b"".join(opened.blob(content)) == CONTENT
    assert tokens.asked == [["repository:team/x:pull"], ["repository:team/x:pull,push"]]
    target = store(registry, "team/y", "team/x")
    assert not target.has_blob(content.digest)
    put(target, CONTENT)  # mounted: both repositories are asked for
    assert target.has_blob(content.digest)
    assert tokens.asked[-1] == ["repository:team/y:pull,push", "repository:team/x:pull"]
    poor = store(registry, "team/z")
    assert poor.tags() == []
    with pytest.raises(Unreachable, match=r"answered 401 to POST of an upload: UNAUTHORIZED"):
        put(poor, CONTENT)
    assert not poor.has_blob(described(CONTENT).digest)
