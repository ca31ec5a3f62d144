"""Access to a real registry with a password, behind TLS; credentials from Docker's configuration."""

import base64
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from model_registry.errors import Misconfigured, Unreachable
from model_registry.oci import reference
from model_registry.stores.base import StoreOptions
from model_registry.stores.oci_registry import RemoteStore
from model_registry.stores.open import open_store
from tests.conformance.store import CONTENT, put
from tests.integration.registry.conftest import AT_ONCE
from tests.integration.registry.proxy import proxying
from tests.integration.registry.server import DockerRegistry, running, tls_for

pytestmark = pytest.mark.debian("docker-registry", "htpasswd")

BEHIND_PROXY = "registry.example.test"
USER, PASSWORD = "ops", "not:a:secret"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DockerRegistry, Path]]:
    """A registry with a password behind TLS, and the authority to trust."""
    folder = tmp_path_factory.mktemp("guarded")
    tls = tls_for(folder, "localhost", BEHIND_PROXY)
    subprocess.run(["htpasswd", "-Bbc", folder / "htpasswd", USER, PASSWORD], check=True, capture_output=True)
    with running(DockerRegistry(folder / "registry", htpasswd=folder / "htpasswd", tls=tls)) as started:
        yield started, tls.ca


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the test's own for Docker's configuration, without any yet."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    return tmp_path / "config.json"


def entry(password: str) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{USER}:{password}".encode()).decode()}


def store(registry: DockerRegistry, ca_file: Path | None) -> RemoteStore:
    return RemoteStore(reference.parse(f"{registry.address}/team/x"), StoreOptions(ca_file=ca_file), AT_ONCE)


def test_the_password_of_docker_s_configuration(guarded: tuple[DockerRegistry, Path], docker: Path) -> None:
    registry, ca_file = guarded
    with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
        store(registry, None).tags()
    elsewhere = {"localhost": entry(PASSWORD)}
    for auths in (elsewhere, elsewhere | {registry.address: entry("wrong")}):
        docker.write_text(json.dumps({"auths": auths}))
        with pytest.raises(Unreachable, match="answered 401") as caught:
            store(registry, ca_file).tags()
        assert caught.value.hint.startswith(f"docker login {registry.address}")
    docker.write_text(json.dumps({"auths": {registry.address: entry(PASSWORD)}}))
    opened = store(registry, ca_file)
    assert b"".join(opened.blob(put(opened, CONTENT))) == CONTENT


@pytest.mark.usefixtures("docker")
def test_ssl_cert_file_is_trusted(guarded: tuple[DockerRegistry, Path], docker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry, ca_file = guarded
    monkeypatch.setenv("SSL_CERT_FILE", str(ca_file))
    docker.write_text(json.dumps({"auths": {registry.address: entry(PASSWORD)}}))
    assert store(registry, None).tags() == []


def test_the_proxy_of_the_environment(
    guarded: tuple[DockerRegistry, Path], docker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, ca_file = guarded
    docker.write_text(json.dumps({"auths": {BEHIND_PROXY: entry(PASSWORD), registry.address: entry(PASSWORD)}}))
    with proxying(registry.port) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:word@{proxy.address}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        opened = RemoteStore(reference.parse(f"{BEHIND_PROXY}/team/x"), StoreOptions(ca_file=ca_file), AT_ONCE)
        assert not opened.has_blob("sha256:" + "0" * 64)
        (head,) = proxy.heads
        assert head.startswith(f"CONNECT {BEHIND_PROXY}:443 ")
        assert f"Proxy-Authorization: Basic {base64.b64encode(b'me:word').decode()}" in head
        assert store(registry, ca_file).tags() == []
        monkeypatch.setenv("NO_PROXY", ".test")
        bypassing = RemoteStore(reference.parse(f"{BEHIND_PROXY}/team/x"), StoreOptions(ca_file=ca_file), AT_ONCE)
        with pytest.raises(Unreachable, match="connection failed"):
            bypassing.tags()
        assert len(proxy.heads) == 1


def test_plain_http_for_loopback_only(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="plain HTTP to registry") as caught:
        open_store(reference.parse("registry.example.com/team/x"), options=StoreOptions(plain_http=True))
    assert caught.value.exit_code == 2
    assert "--plain-http-host registry.example.com" in caught.value.hint
    for host in ("localhost:5000", "127.0.0.1:5000", "127.9.9.9:1"):
        open_store(reference.parse(f"{host}/x"), options=StoreOptions(plain_http=True))
    with pytest.raises(Misconfigured, match="the CA file"):
        open_store(reference.parse("localhost/x"), options=StoreOptions(ca_file=tmp_path / "absent.pem"))


def test_plain_http_for_a_host_that_is_named(registry: DockerRegistry) -> None:
    """127.1 stands for a name such as a compose file's: it resolves, and is none that is known to be this machine's own."""
    host = f"127.1:{registry.port}"
    opened = RemoteStore(reference.parse(f"{host}/team/named"), StoreOptions(plain_http=["other:5000", host]), AT_ONCE)
    assert b"".join(opened.blob(put(opened, CONTENT))) == CONTENT
    for others in (False, ["other:5000"], [registry.address], ["127.1"]):
        with pytest.raises(Unreachable, match="SSL"):
            RemoteStore(reference.parse(f"{host}/team/named"), StoreOptions(plain_http=others), AT_ONCE).tags()
    with pytest.raises(Misconfigured, match=f"plain HTTP to {host}"):
        RemoteStore(reference.parse(f"{host}/team/named"), StoreOptions(plain_http=True), AT_ONCE)
