"""Registries in use deviate from the specification, each in its own way: pushes, moves and signatures arrive all the same."""

import json
import random
from pathlib import Path

import httpx
import pytest

from model_registry.channels import channel, history
from model_registry.errors import Conflict, NotFound, Refused, RegistryError, Unreachable
from model_registry.oci import manifest, reference
from model_registry.signing import referrers, signatures
from model_registry.stores.base import StoreOptions
from model_registry.stores.http_client import OciClient
from model_registry.stores.oci_registry import RemoteStore
from model_registry.stores.retry import Timing
from tests.conformance.store import an_index, described, put_manifest
from tests.integration.registry.conftest import Start, opened, push, sign_and_verify
from tests.integration.registry.hostile import Hostile, Reply, Seen
from tests.integration.registry.quirks import digest
from tests.unit.model_registry.conftest import MakePackage, promote, push_versions
from tests.unit.model_registry.keyring import NOW, ONE, TWO, trusted, version

MIB = 1 << 20
LARGE = random.Random(3).randbytes(9 * MIB + 5)
SMALL = random.Random(4).randbytes(3 * MIB)


@pytest.mark.parametrize(
    ("quirks", "data", "patches"),
    [
        ({}, LARGE, [len(LARGE)]),
        ({"chunk_limit": 4 * MIB}, LARGE, [len(LARGE), 4 * MIB, 4 * MIB, MIB + 5]),
        ({"chunk_limit": 0}, LARGE, [len(LARGE), 4 * MIB, MIB, MIB // 4]),
        ({"body_limit": 4 * MIB}, LARGE, [len(LARGE), 4 * MIB, 4 * MIB, MIB + 5]),
        ({"body_limit": MIB}, SMALL, [MIB, MIB, MIB]),
        ({"no_patch": 405}, LARGE, [len(LARGE)]),
        ({"no_patch": 400}, LARGE, [len(LARGE)]),
        ({"no_patch": 501}, LARGE, [len(LARGE)]),
        ({"keeps": 5 * MIB}, LARGE, [len(LARGE), 4 * MIB + 5]),
    ],
)
def test_a_blob_arrives_where_requests_are_limited(
    server: Hostile, start: Start, quirks: dict[str, int], data: bytes, patches: list[int]
) -> None:
    store, registry = start(**quirks)
    push(store, data)
    assert registry.blobs[digest(data)] == data
    assert [int(seen.headers["content-length"]) for seen in server.asked("PATCH")] == patches


def test_the_progress_of_chunks_ends_at_the_size(server: Hostile, start: Start) -> None:
    start(chunk_limit=4 * MIB)
    progress: list[int] = []
    options = StoreOptions(plain_http=True, progress=lambda _, size: progress.append(size))
    push(RemoteStore(reference.parse(f"{server.address}/team/x"), options), LARGE)
    assert progress[-1] == len(LARGE)


def test_a_limit_that_nothing_passes_is_named_in_the_registry_s_words(start: Start) -> None:
    store, registry = start(body_limit=1_000)
    with pytest.raises(Refused, match=r"413.*Request Entity Too Large") as caught:
        push(store, LARGE)
    assert "client_max_body_size" in caught.value.hint
    assert not registry.blobs
    assert not registry.uploads


@pytest.mark.parametrize("cut", [5_000_000, 2_000_000])
def test_a_chunk_that_breaks_off_is_resumed(server: Hostile, start: Start, cut: int) -> None:
    store, registry = start(chunk_limit=4 * MIB)
    server.cuts = [cut, cut]
    push(store, LARGE)
    assert registry.blobs[digest(LARGE)] == LARGE


NO_API = {
    "400": Reply(400, b'{"errors": [{"code": "UNSUPPORTED"}]}'),
    "404": Reply(404, b"404 page not found"),
    "405": Reply(405),
    "406": Reply(406),
    "501": Reply(501),
    "page": Reply(body=b"<!DOCTYPE html><html></html>", headers={"Content-Type": "text/html"}),
    "object": Reply(body=b"{}"),
    "array": Reply(body=b"[]"),
    "empty": Reply(body=b""),
    "null": Reply(body=b'{"manifests": null}'),
}


@pytest.mark.parametrize("confirms", [True, False])
@pytest.mark.parametrize("answer", NO_API)
def test_a_signature_is_listed_under_the_tag_without_a_referrers_api(start: Start, answer: str, confirms: bool) -> None:
    store, registry = start(referrers=NO_API[answer], confirms=confirms)
    sign_and_verify(store)
    assert any(tag.startswith("sha256-") for tag in registry.tags())


def test_an_empty_list_that_nothing_enters_is_no_referrers_api(start: Start) -> None:
    none = {"schemaVersion": 2, "mediaType": manifest.INDEX_TYPE, "manifests": []}
    store, registry = start(referrers=Reply(body=json.dumps(none).encode()), confirms=False)
    sign_and_verify(store)
    assert any(tag.startswith("sha256-") for tag in registry.tags())


@pytest.mark.parametrize("confirms", [True, False])
def test_the_fallback_tag_is_updated_unless_the_registry_confirms_the_subject(start: Start, confirms: bool) -> None:
    store, registry = start(confirms=confirms)
    sign_and_verify(store)
    assert any(tag.startswith("sha256-") for tag in registry.tags()) == (not confirms)


@pytest.mark.parametrize("kind", ["manifest", "index"])
def test_a_tag_that_is_read_as_the_digest_lists_nothing_and_lets_nothing_be_signed(start: Start, kind: str) -> None:
    store, _ = start(referrers=Reply(404), confirms=False, digest_tags=True)
    subject = put_manifest(store, "one")
    if kind == "index":
        subject = store.push_manifest(an_index(subject))
    assert referrers.listed(store, subject.digest) == []
    with pytest.raises(Refused, match="has no referrers API, and accepts no list under sha256-"):
        signatures.sign(store, subject.digest, ONE, NOW)
    with pytest.raises(Refused, match="not signed"):
        signatures.verify(store, subject.digest, trusted(ONE), NOW)


def test_signing_fails_where_the_signature_cannot_be_found_afterwards(start: Start, server: Hostile) -> None:
    store, registry = start(referrers=Reply(404), confirms=False)
    subject = version(store)

    def forgetful(seen: Seen) -> Reply:
        registry.writes = [write for write in registry.writes if not write[1].startswith("sha256-")]
        return registry(seen)

    server.script = forgetful
    with pytest.raises(RegistryError):
        signatures.sign(store, subject, ONE, NOW)


@pytest.mark.parametrize("replicas", [False, True])
@pytest.mark.parametrize("lag", [0.0, 0.9, 1.5])
def test_a_promotion_waits_until_the_registry_shows_it(
    start: Start, server: Hostile, make_package: MakePackage, lag: float, replicas: bool
) -> None:
    _, registry = start(lag=lag, replicas=replicas)

    def reopened() -> RemoteStore:
        """Open the repository as another process does."""
        return opened(server, registry.clock)

    push_versions(reopened(), make_package, "1.0.0", "2.0.0")
    moves = [promote(reopened(), each) for each in ("1.0.0", "2.0.0", "1.0.0")]
    assert [move.revision for move in moves] == [1, 2, 3]
    registry.clock.sleep(lag)
    assert channel.history(reopened(), "prod") == moves
    assert channel.resolve(reopened(), "prod").revision == 3
    assert len([name for _, name, _ in registry.writes if name.startswith("_h.")]) == 3


@pytest.mark.parametrize("replicas", [False, True])
def test_push_and_signature_arrive_at_a_registry_that_shows_writes_late(
    start: Start, make_package: MakePackage, replicas: bool
) -> None:
    store, registry = start(lag=1.0, replicas=replicas)
    pushed = push_versions(store, make_package, "1.0.0")["1.0.0"]
    signatures.sign(store, pushed, ONE, NOW)
    registry.clock.sleep(1.0)
    signatures.verify(store, pushed, trusted(ONE), NOW)


def test_a_registry_that_never_shows_a_move_is_not_another_writer(start: Start, make_package: MakePackage) -> None:
    store, registry = start()
    push_versions(store, make_package, "1.0.0")
    registry.writes = [(-1e9, name, data) for _, name, data in registry.writes]
    registry.quirks.lag = 1e6
    with pytest.raises(Unreachable, match="accepted the move of the tag") as caught:
        promote(store, "1.0.0")
    assert "somebody" not in str(caught.value)


@pytest.mark.parametrize("deletes", [True, False])
def test_a_move_that_an_immutable_tag_refuses_is_no_move_of_the_history(
    start: Start, make_package: MakePackage, deletes: bool
) -> None:
    store, registry = start(deletes=deletes)
    pushed = push_versions(store, make_package, "1.0.0", "2.0.0")
    first = promote(store, "1.0.0")
    registry.quirks.immutable = True
    with pytest.raises(Refused, match="cannot be overwritten") as caught:
        promote(store, "2.0.0")
    assert "'prod'" in caught.value.hint
    moves = channel.history(store, "prod")
    assert history.completed_moves(moves, pushed["1.0.0"]) == [first]
    assert len(moves) == (1 if deletes else 2)
    registry.quirks.immutable = False
    promote(store, "2.0.0")
    assert channel.resolve(store, "prod").version == "2.0.0"


@pytest.mark.parametrize("page", [1, 2, 3])
def test_all_tags_are_listed_without_links(start: Start, page: int) -> None:
    store, _ = start(tags_page=page)
    target = put_manifest(store, "one")
    names = [f"v{number}" for number in range(7)]
    store.move_tags(dict.fromkeys(names, target), expect={})
    assert store.tags() == names


def test_a_forbidden_absent_tag_is_absent(start: Start, make_package: MakePackage) -> None:
    store, registry = start()
    push_versions(store, make_package, "1.0.0")
    registry.quirks.forbids_absent = True
    for ask in (store.resolve, store.validator):
        with pytest.raises(NotFound, match="has no tag 'prod'"):
            ask("prod")
    with pytest.raises(NotFound):
        store.manifest(digest(b"absent"))
    push_versions(store, make_package, "2.0.0")
    assert promote(store, "2.0.0").revision == 1


def test_a_repository_that_is_forbidden_stays_an_error(start: Start, server: Hostile) -> None:
    store, _ = start()
    server.always(Reply(403, b'{"errors": [{"code": "DENIED", "message": "requested access is denied"}]}'))
    with pytest.raises(Unreachable, match=r"403.*requested access is denied"):
        store.resolve("prod")
    with pytest.raises(Unreachable, match="403"):
        push(store, SMALL)


def test_credentials_are_sent_where_a_registry_hides_what_is_private(
    start: Start, server: Hostile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"auths": {server.address: {"auth": "dXNlcjpz\nZWNyZXQ="}, "x": None}}))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    store, registry = start(hides=True)
    target = put_manifest(store, "one")
    store.move_tags({"prod": target}, expect={"prod": None})
    assert store.resolve("prod").digest == target.digest
    assert registry.tags() == ["prod"]
    assert len([seen for seen in server.seen if seen.path == "/v2/"]) == 1


def test_a_challenge_is_requested_once_from_a_registry_without_credentials(start: Start, server: Hostile) -> None:
    store, _ = start()
    for _ in range(3):
        with pytest.raises(NotFound):
            store.resolve("prod")
    assert len([seen for seen in server.seen if seen.path == "/v2/"]) == 1


def test_compressed_manifests_and_lists_are_read(start: Start, make_package: MakePackage) -> None:
    store, _ = start(zips=True)
    pushed = push_versions(store, make_package, "1.0.0")
    promote(store, "1.0.0")
    assert channel.resolve(store, "prod").digest == pushed["1.0.0"]
    sign_and_verify(store)


@pytest.mark.parametrize("retry_after", ["", "0", "0.2", "1"])
def test_every_third_request_that_is_throttled_harms_nothing(start: Start, make_package: MakePackage, retry_after: str) -> None:
    store, registry = start(busy_share=0.3, retry_after=retry_after)
    push(store, LARGE)
    for number in range(3):
        push_versions(store, make_package, f"{number}.0.0")
        promote(store, f"{number}.0.0")
    assert registry.blobs[digest(LARGE)] == LARGE
    assert [move.to_version for move in channel.history(store, "prod")] == ["0.0.0", "1.0.0", "2.0.0"]


def test_another_writer_is_still_distinguished_from_a_late_registry(
    start: Start, make_package: MakePackage, server: Hostile
) -> None:
    store, registry = start()
    pushed = push_versions(store, make_package, "1.0.0", "2.0.0", "3.0.0")
    promote(store, "1.0.0")
    other = store.manifest(pushed["3.0.0"])

    def overtaken(seen: Seen) -> Reply:
        reply = registry(seen)
        if seen.method == "PUT" and seen.path.endswith("/prod"):
            registry.writes.append((0.0, "prod", other))
        return reply

    server.script = overtaken
    with pytest.raises(Conflict, match="another process moved 'prod' at the same time"):
        promote(store, "2.0.0")


def test_the_next_page_is_asked_for_where_the_first_one_was(start: Start, server: Hostile) -> None:
    """Nexus links to its path behind another port (nexus-public 1011)."""
    store, registry = start(tags_page=2)
    target = put_manifest(store, "one")
    names = [f"v{number}" for number in range(5)]
    store.move_tags(dict.fromkeys(names, target), expect={})

    def linking(seen: Seen) -> Reply:
        if not seen.path.startswith("/v2/"):
            return Reply(400)
        reply = registry(seen)
        if "/tags/list" not in seen.path or b"v4" in bytes(reply.body):  # type: ignore[arg-type]
            return reply
        last = json.loads(bytes(reply.body))["tags"][-1]  # type: ignore[arg-type]
        link = f'<http://{server.address}/repository/x/v2/team/x/tags/list?n=2&last={last}>; rel="next"'
        return Reply(200, reply.body, {"Link": link})

    server.script = linking
    assert store.tags() == names


def test_tags_without_pages_are_asked_for_twice_at_most(start: Start, server: Hostile) -> None:
    store, _ = start()
    target = put_manifest(store, "one")
    store.move_tags({"a": target, "b": target}, expect={})
    server.seen.clear()
    assert store.tags() == ["a", "b"]
    assert len(server.seen) == 2


def test_content_that_is_stored_elsewhere_is_requested_with_get(start: Start, server: Hostile, elsewhere: Hostile) -> None:
    """Addresses of a storage are signed for GET; a HEAD that is redirected there is answered 403 (moby 50065)."""
    store, registry = start()
    target = put_manifest(store, "one")
    store.move_tags({"prod": target}, expect={})

    def redirecting(seen: Seen) -> Reply:
        reads = seen.method in ("GET", "HEAD") and ("/manifests/" in seen.path or "/blobs/sha256" in seen.path)
        if reads and registry(seen).status == 200:
            return Reply(307, headers={"Location": f"http://{elsewhere.address}{seen.path}"})
        return registry(seen)

    elsewhere.script = lambda seen: registry(seen) if seen.method == "GET" else Reply(403, b"<Code>AccessDenied</Code>")
    server.script = redirecting
    assert store.validator("prod") == target.digest
    assert store.has_blob(target.digest)
    assert store.has_blob(described(b"{}").digest)
    store.move_tags({"prod": target, "next": target}, expect={"prod": target.digest, "next": None})
    assert store.resolve("next").digest == target.digest


def test_a_list_of_signatures_that_must_not_move_is_named(start: Start) -> None:
    store, _ = start(referrers=Reply(404), confirms=False, immutable=True)
    subject = version(store)
    signatures.sign(store, subject, ONE, NOW)
    with pytest.raises(Refused, match=r"accepts no list under sha256-\w+: .*cannot be overwritten") as caught:
        signatures.sign(store, subject, TWO, NOW)
    assert "tags that may move" in caught.value.hint
    signatures.verify(store, subject, trusted(ONE), NOW)


def test_a_range_of_the_last_chunk_alone_is_no_place_to_resume(start: Start, server: Hostile) -> None:
    """One registry states the range of the chunk, from 0, in its answers (regclient 627)."""
    store, registry = start(chunk_limit=4 * MIB)

    def chunkwise(seen: Seen) -> Reply:
        reply = registry(seen)
        if seen.method == "PATCH" and reply.status == 202:
            return Reply(202, headers=reply.headers | {"Range": f"0-{len(seen.body) - 1}"})
        return reply

    server.script = chunkwise
    push(store, LARGE)
    assert registry.blobs[digest(LARGE)] == LARGE


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("http://registry.example.com/v2/x?_state=a", "https://registry.example.com/v2/x?_state=a"),
        ("https://registry.example.com:443/v2/x", "https://registry.example.com/v2/x"),
        ("https://storage.example.com/x", "https://storage.example.com/x"),
    ],
)
def test_a_registry_behind_a_proxy_that_ends_tls_is_asked_with_tls(named: str, expected: str) -> None:
    client = OciClient("registry.example.com", StoreOptions(), Timing())
    assert str(client.allowed(httpx.URL(named))) == expected
    for other in ("http://registry.example.com:81/x", "http://storage.example.com/x", "http://u:p@registry.example.com/x"):
        with pytest.raises(Refused, match="answers with the URL"):
            client.allowed(httpx.URL(other))


def test_a_move_whose_answer_was_lost_counts_where_the_tag_must_not_be_written_again(start: Start, server: Hostile) -> None:
    store, registry = start(immutable=True)
    target = put_manifest(store, "one")
    failures = iter([True])

    def losing(seen: Seen) -> Reply:
        reply = registry(seen)
        return Reply(502) if seen.method == "PUT" and seen.path.endswith("/prod") and next(failures, False) else reply

    server.script = losing
    store.move_tags({"prod": target}, expect={"prod": None})
    assert store.resolve("prod").digest == target.digest
