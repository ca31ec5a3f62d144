"""Challenges and limits that deviate, by public reports on other clients."""

import json
import random

import pytest

from tests.conformance.store import put_manifest
from tests.integration.registry.conftest import Start, push
from tests.integration.registry.hostile import Hostile, Reply, Seen
from tests.integration.registry.quirks import CREDENTIALS, answering, digest

SMALL = random.Random(4).randbytes(3 << 20)


@pytest.mark.parametrize("status", [520, 522, 524])
def test_a_proxy_whose_origin_is_late_is_asked_again(start: Start, server: Hostile, status: int) -> None:
    """Cloudflare's statuses are transient (cachix 350, got 991)."""
    store, registry = start()
    failures = iter([True, True])
    server.script = answering(registry, lambda _: next(failures, False), lambda _: Reply(status))
    push(store, SMALL)
    assert registry.blobs[digest(SMALL)] == SMALL


def test_a_limit_on_requests_that_is_said_with_403_is_waited_for(start: Start, server: Hostile) -> None:
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

    asked = Reply(status, headers={"WWW-Authenticate": challenge})
    server.script = answering(registry, writes_without_token, lambda _: asked)
    push(store, SMALL)
    assert registry.blobs[digest(SMALL)] == SMALL
