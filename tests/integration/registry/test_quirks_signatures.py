"""Signatures and moves at registries that deviate, by public reports on other clients."""

import json

import pytest

from model_registry.channels import channel
from model_registry.channels.move_request import MoveRequest
from model_registry.errors import NotFound, Refused, Unreachable
from model_registry.oci import manifest
from model_registry.signing import referrers, signatures
from model_registry.stores.oci_registry import RemoteStore
from tests.integration.registry.conftest import Start, opened, sign_and_verify
from tests.integration.registry.hostile import Hostile, Reply, Seen
from tests.integration.registry.quirks import answering, digest
from tests.unit.model_registry.conftest import MakePackage, promote, push_versions
from tests.unit.model_registry.keyring import NOW, ONE, trusted, version


@pytest.mark.parametrize("confirms", [True, False])
def test_a_signature_that_is_listed_as_another_type_is_found(start: Start, server: Hostile, confirms: bool) -> None:
    """The type in the list is the registry's own idea (harbor 19867, oras 1127); `sign` searches as `verify` does."""
    store, registry = start(confirms=confirms)

    def mistyped(seen: Seen) -> Reply:
        document = json.loads(bytes(registry(seen).body))  # type: ignore[arg-type]
        entries = [entry | {"artifactType": "application/vnd.oci.image.config.v1+json"} for entry in document["manifests"]]
        return Reply(body=json.dumps(document | {"manifests": entries}).encode())

    server.script = answering(registry, lambda seen: "/referrers/" in seen.path, mistyped)
    sign_and_verify(store)


@pytest.mark.parametrize("typed", [None, "", manifest.EMPTY_TYPE])
def test_a_signature_that_is_listed_without_its_type_is_found(start: Start, server: Hostile, typed: str | None) -> None:
    """As Azure's registry (acr 784), Harbor (19867) and cosign's own list under the tag (kyverno 16664) have it."""
    store, registry = start()

    def untyped(seen: Seen) -> Reply:
        document = json.loads(bytes(registry(seen).body))  # type: ignore[arg-type]
        entries = [entry | {"artifactType": typed} for entry in document["manifests"]]
        return Reply(body=json.dumps(document | {"manifests": entries}).encode())

    server.script = answering(registry, lambda seen: "/referrers/" in seen.path, untyped)
    sign_and_verify(store)
    assert not any(tag.startswith("sha256-") for tag in registry.tags())


@pytest.mark.parametrize("lag", [0.0, 1.0])
def test_a_registry_that_forbids_absent_content_accepts_the_first_version_and_its_signature(
    start: Start, server: Hostile, make_package: MakePackage, lag: float
) -> None:
    """Artifactory answers 403 for an absent tag, and so for the API that it does not have (cosign 2973)."""
    _, registry = start(forbids_absent=True, referrers=Reply(404), confirms=False, lag=lag, replicas=True)

    def reopened() -> RemoteStore:
        return opened(server, registry.clock)

    subject = push_versions(reopened(), make_package, "1.0.0")["1.0.0"]
    signatures.sign(reopened(), subject, ONE, NOW)
    signatures.verify(reopened(), subject, trusted(ONE), NOW)
    promote(reopened(), "1.0.0")
    assert channel.resolve(reopened(), "prod").revision == 1


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_list_of_referrers_that_is_not_given_is_not_an_unsigned_version(start: Start, server: Hostile, status: int) -> None:
    """cosign reports throttled lists as no signature (retagger 1239)."""
    store, registry = start()
    subject = version(store)
    signatures.sign(store, subject, ONE, NOW)
    server.script = answering(registry, lambda seen: "/referrers/" in seen.path, lambda _: Reply(status))
    with pytest.raises(Unreachable, match=f"{status}"):
        signatures.verify(store, subject, trusted(ONE), NOW)


def test_a_manifest_that_is_shown_only_once_it_has_a_tag(start: Start, server: Hostile, make_package: MakePackage) -> None:
    """One registry shows what was pushed by digest after it was tagged (distribution-spec 412)."""
    store, registry = start()

    def untagged(seen: Seen) -> bool:
        name = seen.path.rpartition("/")[2]
        tagged = {digest(data) for tag, data in registry.shown().items() if ":" not in tag}
        return seen.method in ("GET", "HEAD") and "/manifests/sha256:" in seen.path and name not in tagged

    server.script = answering(registry, untagged, lambda _: Reply(404))
    push_versions(store, make_package, "1.0.0")
    assert promote(store, "1.0.0").revision == 1
    assert channel.resolve(opened(server, registry.clock), "prod").version == "1.0.0"


@pytest.mark.parametrize("replicas", [False, True])
@pytest.mark.parametrize("lag", [0.9, 1.5])
def test_a_refused_move_is_reverted_if_writes_are_visible_late(
    start: Start, make_package: MakePackage, lag: float, replicas: bool
) -> None:
    store, registry = start(lag=lag, replicas=replicas)
    push_versions(store, make_package, "1.0.0", "2.0.0")
    first = promote(store, "1.0.0")
    registry.quirks.immutable = True
    with pytest.raises(Refused, match="cannot be overwritten"):
        promote(store, "2.0.0")
    registry.clock.sleep(lag)
    assert channel.history(store, "prod") == [first]


def test_referrers_of_a_type_that_does_not_fit_leave_an_error_at_signing(start: Start, server: Hostile) -> None:
    """No list has the signature as one, so that `verify` could not find it: `sign` fails."""
    store, registry = start()
    subject = version(store)

    def mistyped(seen: Seen) -> Reply:
        return Reply(body=bytes(registry(seen).body).replace(b"sigstore", b"x"))  # type: ignore[arg-type]

    def hidden(seen: Seen) -> bool:
        return "/referrers/" in seen.path or (seen.method != "PUT" and "/manifests/sha256-" in seen.path)

    server.script = answering(registry, hidden, lambda seen: mistyped(seen) if "/referrers/" in seen.path else Reply(404))
    with pytest.raises(Unreachable, match="accepted the move of the tag 'sha256-"):
        signatures.sign(store, subject, ONE, NOW)
    assert referrers.listed(store, subject)


@pytest.mark.parametrize("seed", range(12))
def test_a_rollback_right_after_a_promotion_sees_it_on_any_replica(
    start: Start, server: Hostile, make_package: MakePackage, seed: int
) -> None:
    """Each command is a process of its own, and any replica answers it."""
    _, registry = start(lag=1.0, replicas=True, seed=seed)

    def reopened() -> RemoteStore:
        return opened(server, registry.clock)

    push_versions(reopened(), make_package, "1.0.0", "2.0.0")
    moves = [promote(reopened(), each) for each in ("1.0.0", "2.0.0")]
    moves.append(channel.rollback(reopened(), "prod", MoveRequest("op@host", "", NOW)))
    registry.clock.sleep(1.0)
    assert channel.history(reopened(), "prod") == moves
    assert channel.resolve(reopened(), "prod").version == "1.0.0"


def test_a_registry_without_the_header_of_digests_takes_versions_moves_and_signatures(
    start: Start, server: Hostile, make_package: MakePackage
) -> None:
    """Proxies drop Docker-Content-Digest, and some registries do not send it (distribution 3848, quay 1310)."""
    store, registry = start()

    def stripped(seen: Seen) -> Reply:
        reply = registry(seen)
        headers = {name: value for name, value in reply.headers.items() if name != "Docker-Content-Digest"}
        return Reply(reply.status, reply.body, headers)

    server.script = stripped
    push_versions(store, make_package, "1.0.0", "2.0.0")
    assert [promote(store, each).revision for each in ("1.0.0", "2.0.0")] == [1, 2]
    sign_and_verify(store)


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip"])
def test_uncompressed_content_with_a_content_encoding_is_read(
    start: Start, server: Hostile, make_package: MakePackage, encoding: str
) -> None:
    """Mirrors keep the header of what they have decoded (docker-registry 369)."""
    store, registry = start()

    def named(seen: Seen) -> Reply:
        reply = registry(seen)
        return Reply(reply.status, reply.body, {**reply.headers, "Content-Encoding": encoding})

    server.script = answering(registry, lambda seen: seen.method == "GET", named)
    push_versions(store, make_package, "1.0.0")
    promote(store, "1.0.0")
    assert channel.resolve(opened(server, registry.clock), "prod").version == "1.0.0"


def test_a_tag_that_is_redirected_to_nothing_is_not_absent(
    start: Start, server: Hostile, elsewhere: Hostile, make_package: MakePackage
) -> None:
    """One registry redirects to a page that answers 404 (source-controller 2050): that does not mean that the tag is absent."""
    store, registry = start()
    push_versions(store, make_package, "1.0.0")
    promote(store, "1.0.0")
    redirect = Reply(302, headers={"Location": f"http://{elsewhere.address}/-/v2/packages"})
    server.script = answering(registry, lambda seen: seen.path.endswith("/manifests/prod"), lambda _: redirect)
    for ask in (store.resolve, store.validator):
        with pytest.raises(Unreachable, match=r"404 to GET of the manifest of 'prod', which localhost:\d+ redirected there"):
            ask("prod")
    before = len(registry.writes)
    with pytest.raises(Unreachable, match="redirected there"):
        promote(store, "1.0.0")
    assert len(registry.writes) == before


def test_a_rule_against_moves_may_be_reported_with_412(start: Start, server: Hostile, make_package: MakePackage) -> None:
    """Harbor's way (harbor 17332)."""
    store, registry = start()
    push_versions(store, make_package, "1.0.0", "2.0.0")
    first = promote(store, "1.0.0")
    ruled = Reply(412, b'{"errors": [{"code": "PRECONDITION", "message": "configured as immutable"}]}')
    server.script = answering(registry, lambda seen: seen.method == "PUT" and seen.path.endswith("/prod"), lambda _: ruled)
    with pytest.raises(Refused, match="configured as immutable"):
        promote(store, "2.0.0")
    assert channel.history(store, "prod") == [first]


def test_a_registry_that_takes_no_manifest_with_a_subject_is_an_error_at_signing(start: Start, server: Hostile) -> None:
    """As Docker Hub was (hub-feedback 2307)."""
    store, registry = start(referrers=Reply(404), confirms=False)
    subject = version(store)
    absent = Reply(404, b"404 page not found")
    server.script = answering(registry, lambda seen: b'"subject"' in seen.body, lambda _: absent)
    with pytest.raises(NotFound, match="404 page not found"):
        signatures.sign(store, subject, ONE, NOW)
