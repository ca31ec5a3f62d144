"""Copies between real registries and folders, and into registries with deviations."""

import base64
import json
import os
import pty
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from model_registry.channels import channel, copy_repository, signed_move
from model_registry.channels.copy_repository import CopyPlan
from model_registry.errors import Refused, Unreachable
from model_registry.oci import reference, tags
from model_registry.signing import signatures
from model_registry.stores.base import Store
from model_registry.stores.oci_layout import LayoutStore
from model_registry.stores.oci_registry import RemoteStore
from model_registry.stores.upload import WHOLE_BYTES
from tests.conformance.store import put
from tests.integration.registry.conftest import AT_ONCE, PLAIN, Start
from tests.integration.registry.hostile import Reply
from tests.integration.registry.server import DockerRegistry, running
from tests.integration.registry.test_commands import COMMAND, run
from tests.unit.model_registry.conftest import MakePackage, onnx_bytes, promote, push_versions
from tests.unit.model_registry.keyring import NOW, ONE, trusted

pytestmark = pytest.mark.debian("docker-registry", "htpasswd")


@pytest.fixture
def stocked(tmp_path: Path, make_package: MakePackage) -> LayoutStore:
    """A folder with two versions, one of them signed, and a channel that was moved three times, once to a canary."""
    store = LayoutStore(tmp_path / "source" / "x")
    digests = push_versions(store, make_package, "1.0.0", "2.0.0")
    signatures.sign(store, digests["2.0.0"], ONE, NOW, ["x:2.0.0"])
    promote(store, "1.0.0", key=ONE)
    promote(store, "2.0.0", canary=5, key=ONE)
    promote(store, "2.0.0", key=ONE)
    return store


def copy(source: Store, destination: Store) -> CopyPlan:
    plan = copy_repository.plan_copy(source, destination)
    copy_repository.copy(source, destination, plan)
    return plan


def assert_copied(source: Store, destination: Store) -> None:
    """Compare versions, channels, histories and signatures of both stores."""
    for tag in tags.versions(source.tags()) + tags.channels(source.tags()):
        assert destination.resolve(tag).digest == source.resolve(tag).digest
    assert channel.history(destination, "prod") == channel.history(source, "prod")
    assert channel.resolve(destination, "prod").history == channel.resolve(source, "prod").history
    digest = destination.resolve("2.0.0").digest
    assert signatures.verify(destination, digest, trusted(ONE), NOW, "x:2.0.0") == ["key-1"]
    revision = channel.resolve(destination, "prod").revision
    signed_move.verify(destination, "prod", revision, trusted(ONE), NOW)


def opened(registry: DockerRegistry, requests: list[str]) -> RemoteStore:
    """Open a new repository `x`; its requests are appended to `sent`."""
    store = RemoteStore(reference.parse(f"{registry.address}/r{uuid.uuid4().hex[:8]}/x"), PLAIN, AT_ONCE)
    store._client._client.event_hooks = {"request": [lambda request: requests.append(f"{request.method} {request.url.path}")]}
    return store


def test_a_folder_is_copied_to_a_registry_and_back_and_repeated_without_a_write(
    registry: DockerRegistry, stocked: LayoutStore, tmp_path: Path
) -> None:
    requests: list[str] = []
    remote = opened(registry, requests)
    copy(stocked, remote)
    assert_copied(stocked, remote)
    requests.clear()
    assert copy(stocked, remote).is_empty
    assert {request.partition(" ")[0] for request in requests} <= {"GET", "HEAD"}
    restored = LayoutStore(tmp_path / "restored" / "x")
    copy(remote, restored)
    assert_copied(stocked, restored)
    promote(stocked, "1.0.0", key=ONE)
    requests.clear()
    copy(stocked, remote)
    assert_copied(stocked, remote)
    assert not [request for request in requests if request.startswith("DELETE /v2/") and "/manifests/" in request]


def test_a_registry_that_is_killed_at_any_write_of_a_copy_never_shows_a_channel_without_its_version(
    stocked: LayoutStore, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with running(DockerRegistry(tmp_path_factory.mktemp("mortal") / "registry")) as mortal:
        writes: list[str] = []
        copy(stocked, opened(mortal, writes))
        count = len([request for request in writes if not request.startswith(("GET", "HEAD"))])
        for step in range(0, count, 4):
            requests: list[str] = []
            store = opened(mortal, requests)

            def kill(request: httpx.Request, requests: list[str] = requests, step: int = step) -> None:
                if request.method not in ("GET", "HEAD"):
                    requests.append(request.method)
                if len(requests) > step:
                    mortal.kill()

            store._client._client.event_hooks = {"request": [kill]}
            with pytest.raises(Unreachable):
                copy(stocked, store)
            mortal.start()
            fresh = RemoteStore(reference.parse(store.repository), PLAIN, AT_ONCE)
            if "prod" in fresh.tags():
                assert channel.resolve(fresh, "prod").version == "2.0.0"
            copy(stocked, fresh)
            assert_copied(stocked, fresh)


@pytest.mark.parametrize(
    "quirks",
    [
        {},
        {"deletes": False},
        {"referrers": Reply(404), "confirms": False},
        {"lag": 1.0, "replicas": True},
        {"forbids_absent": True},
        {"tags_page": 3},
    ],
    ids=str,
)
def test_registries_with_deviations_get_complete_copies(start: Start, stocked: LayoutStore, quirks: dict[str, Any]) -> None:
    remote, registry = start(**quirks)
    copy(stocked, remote)
    registry.clock.sleep(2 * quirks.get("lag", 0.0))
    assert_copied(stocked, remote)
    promote(stocked, "1.0.0", key=ONE)
    copy(stocked, remote)
    registry.clock.sleep(2 * quirks.get("lag", 0.0))
    assert_copied(stocked, remote)


def test_a_registry_whose_tags_never_move_is_named_with_the_remedy(start: Start, stocked: LayoutStore) -> None:
    remote, _ = start(immutable=True)
    copy(stocked, remote)
    promote(stocked, "1.0.0", key=ONE)
    with pytest.raises(Refused) as caught:
        copy(stocked, remote)
    assert "if the registry keeps tags from moving, exempt 'prod' and '_h.*' from that rule" in caught.value.hint
    assert channel.resolve(remote, "prod").revision == 3


def test_content_is_mounted_within_one_registry(registry: DockerRegistry, make_package: MakePackage) -> None:
    source, target = (f"{registry.address}/{name}{uuid.uuid4().hex[:8]}/x" for name in ("from", "to"))
    run("push", str(make_package("v1", model=onnx_bytes(uuid.uuid4().hex.encode()))), f"{source}:1.0.0")
    run("promote", source, "--to", "1.0.0")
    before = len((registry.folder / "log").read_text())
    assert "copied: 1 versions" in run("copy", source, target).stdout
    requests = (registry.folder / "log").read_text()[before:].splitlines()
    mounts = [line for line in requests if "POST" in line and "mount=" in line and '" 201 ' in line]
    assert len(mounts) >= 5
    assert not [line for line in requests if "PATCH" in line or ('"PUT /v2/' in line and "/blobs/" in line)]


def test_a_terminal_shows_the_steps_and_a_bar(registry: DockerRegistry, make_package: MakePackage) -> None:
    source, target = (f"{registry.address}/{name}{uuid.uuid4().hex[:8]}/x" for name in ("from", "to"))
    folder = make_package("large", model=onnx_bytes(os.urandom(WHOLE_BYTES).hex().encode()))
    run("push", str(folder), f"{source}:1.0.0")
    ours, theirs = pty.openpty()
    copied = [*COMMAND, "copy", source, "oci:" + str(folder.parent / "x")]
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        completed = subprocess.run(
            copied, stdout=subprocess.PIPE, stderr=theirs, check=True, env=os.environ | {"TERM": "xterm"}
        )
        os.close(theirs)
        drawn = terminal.read(1 << 16)
    assert b"writing" in drawn
    assert b"sha256:" in drawn
    assert b"copied: 1 versions" in completed.stdout
    assert run("copy", source, target).stderr == ""


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[list[DockerRegistry]]:
    """Two registries with different passwords."""
    registries = []
    for name in ("one", "two"):
        subprocess.run(["htpasswd", "-Bbc", tmp_path / name, "ops", name], check=True, capture_output=True)
        registries.append(DockerRegistry(tmp_path / f"registry-{name}", htpasswd=tmp_path / name))
    with running(registries[0]), running(registries[1]):
        yield registries


def test_each_registry_gets_its_own_credentials_and_large_blobs_are_streamed(
    guarded: list[DockerRegistry], tmp_path: Path, make_package: MakePackage
) -> None:
    auths = {
        registry.address: {"auth": base64.b64encode(f"ops:{password}".encode()).decode()}
        for registry, password in zip(guarded, ("one", "two"), strict=True)
    }
    source, target = (f"{registry.address}/team/x" for registry in guarded)
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"auths": auths}))
    model = onnx_bytes(os.urandom(WHOLE_BYTES).hex().encode())
    folder = make_package("large", model=model)
    run("push", str(folder), f"{source}:1.0.0", DOCKER_CONFIG=str(tmp_path))
    run("copy", source, target, DOCKER_CONFIG=str(tmp_path))
    run("pull", f"{target}:1.0.0", str(tmp_path / "pulled"), DOCKER_CONFIG=str(tmp_path))
    assert (tmp_path / "pulled" / "model.onnx").read_bytes() == model
    config.write_text(json.dumps({"auths": {guarded[0].address: auths[guarded[0].address]}}))
    refused = run("copy", source, target, code=4, DOCKER_CONFIG=str(tmp_path)).stderr
    assert f"docker login {guarded[1].address}" in refused


def test_a_blob_that_is_copied_is_verified(registry: DockerRegistry, stocked: LayoutStore) -> None:
    """The registry has damaged a stored blob."""
    remote = opened(registry, [])
    copy(stocked, remote)
    content = put(remote, b"content of a later version" * 1000)
    path = registry.blob(content.digest)
    path.write_bytes(path.read_bytes()[::-1])
    other = opened(registry, [])
    with pytest.raises(Exception, match="digest"):
        other.push_blob(content, copy_repository._open(remote, content))
    assert not other.has_blob(content.digest)
