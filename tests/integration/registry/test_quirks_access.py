"""Challenges and limits that deviate, by public reports on other clients."""

import itertools
import json
import random

import pytest

from model_registry import package
from model_registry.channels import channel
from model_registry.errors import Denied
from tests.conformance.store import put_manifest
from tests.integration.registry.conftest import Start, opened, push
from tests.integration.registry.hostile import Hostile, Reply, Seen
from tests.integration.registry.quirks import CREDENTIALS, answering, digest
from tests.unit.model_registry.conftest import MakePackage, promote, push_versions

LARGE = random.Random(3).randbytes((9 << 20) + 5)
SMALL = random.Random(4).randbytes(3 << 20)


@pytest.mark.parametrize("status", [520, 522, 524])
def test_a_proxy_whose_origin_is_late_is_asked_again(start: Start, server: Hostile, status: int) -> None:
    """Cloudflare's statuses are transient (cachix 350, got 991)."""
    store, registry = start()
    failures = iter([True, True])
    server.script = answering(registry, lambda _: next(failures, False), lambda _: Reply(status))
    push(store, SMALL)
    assert registry.blobs[digest(SMALL)] == SMALL


def test_a_limit_on_requests_that_is_reported_with_403_is_waited_for(start: Start, server: Hostile) -> None:
    """GitHub's secondary limits are 403 with a Retry-After (refchecker 67)."""
    store, registry = start()
    put_manifest(store, "one")
    limits = iter([True] * 8)
    limited = Reply(403, b'{"message": "You have exceeded a secondary rate limit"}', {"Retry-After": "1"})
    before = registry.clock.now
    server.script = answering(registry, lambda _: next(limits, False), lambda _: limited)
    put_manifest(store, "two")
    assert registry.clock.now - before >= 8


@pytest.fixture
def account(server: Hostile, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Docker's configuration with a password for the server."""
    folder = tmp_path_factory.mktemp("docker")
    (folder / "config.json").write_text(json.dumps({"auths": {server.address: {"auth": CREDENTIALS.partition(" ")[2]}}}))
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize("status", [401, 403])
def test_a_challenge_counts_with_403_too(start: Start, server: Hostile, status: int) -> None:
    """icr.io asks for a wider scope with 403 (devcontainers/cli 945, go-containerregistry 724)."""
    store, registry = start()
    challenge = f'Bearer realm="http://{server.address}/token",service="registry",error="insufficient_scope"'

    def writes_without_token(seen: Seen) -> bool:
        return seen.method in ("POST", "PATCH", "PUT") and seen.headers.get("authorization") != "Bearer abc"

    challenged = Reply(status, headers={"WWW-Authenticate": challenge})
    server.script = answering(registry, writes_without_token, lambda _: challenged)
    push(store, SMALL)
    assert registry.blobs[digest(SMALL)] == SMALL


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize("status", [401, 403])
def test_credentials_are_sent_where_only_readers_may_be_anonymous_and_none_is_challenged(
    start: Start, server: Hostile, status: int
) -> None:
    """zot answers a push without credentials 403, and `/v2/` 200 (helm 12234)."""
    store, registry = start()

    def is_anonymous_write(seen: Seen) -> bool:
        return seen.method not in ("GET", "HEAD") and seen.headers.get("authorization") != CREDENTIALS

    server.script = answering(registry, is_anonymous_write, lambda _: Reply(status))
    store.move_tags({"prod": put_manifest(store, "one")}, expect={})
    assert registry.tags() == ["prod"]


@pytest.mark.usefixtures("account")
def test_a_realm_that_limits_requests_with_403_is_waited_for(start: Start, server: Hostile) -> None:
    store, registry = start(hides=True)
    limits = iter([True] * 3)
    limited = Reply(403, headers={"Retry-After": "1"})
    server.script = answering(registry, lambda seen: seen.path.startswith("/token") and next(limits, False), lambda _: limited)
    push(store, SMALL)
    assert registry.blobs[digest(SMALL)] == SMALL


@pytest.mark.usefixtures("account")
def test_tokens_that_are_good_for_two_requests_carry_an_upload_to_its_end(start: Start, server: Hostile) -> None:
    """Tokens expire in the middle of an upload (containers/image 1907, docker_auth 240, moby 33558)."""
    store, registry = start(chunk_limit=4 << 20)
    remaining: dict[str, int] = {}
    numbers = itertools.count()

    def expiring(seen: Seen) -> Reply:
        if seen.path.startswith("/token"):
            token = f"t{next(numbers)}"
            remaining[token] = 2
            return Reply(body=json.dumps({"token": token}).encode())
        token = seen.headers.get("authorization", "").removeprefix("Bearer ")
        if remaining.get(token, 0) == 0:
            challenge = f'Bearer realm="http://{server.address}/token",service="registry",error="invalid_token"'
            return Reply(401, headers={"WWW-Authenticate": challenge})
        remaining[token] -= 1
        return registry(seen)

    server.script = expiring
    push(store, LARGE)
    assert registry.blobs[digest(LARGE)] == LARGE


@pytest.mark.parametrize("blobs", [True, False])
def test_an_account_that_may_write_and_not_read_overwrites_nothing(
    start: Start, server: Hostile, make_package: MakePackage, blobs: bool
) -> None:
    """403 does not mean that a version is absent unless the account has read a manifest there."""
    store, registry = start()
    pushed = push_versions(store, make_package, "1.0.0")["1.0.0"]
    promote(store, "1.0.0")

    def is_read(seen: Seen) -> bool:
        readable = "/uploads/" in seen.path or (blobs and "/blobs/" in seen.path)
        return seen.method in ("GET", "HEAD") and not readable

    server.script = answering(registry, is_read, lambda _: Reply(403, b'{"errors": [{"code": "DENIED"}]}'))
    writer = opened(server, registry.clock)
    with pytest.raises(Denied, match="403"):
        package.push(writer, make_package("other", model=b"other"), "m", "1.0.0")
    server.script = registry
    assert store.resolve("1.0.0").digest == pushed
    assert channel.resolve(store, "prod").digest == pushed
