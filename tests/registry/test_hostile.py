"""A registry that lies: each lie is refused by name, costs little, and is never half believed."""

import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from model_registry import digest, manifest, package, reference
from model_registry.errors import Conflict, Corrupt, NotFound, Refused, RegistryError, Unreachable
from model_registry.manifest import Descriptor
from model_registry.stores.options import StoreOptions
from model_registry.stores.remote import MOST_PAGES, RemoteStore
from model_registry.stores.retry import MOST_ATTEMPTS, Timing
from tests.registry.hostile import Hostile, Reply, Seen, hostile
from tests.unit.registry.store_conformance import described

CONTENT = bytes(range(256)) * 4096  # 1 MiB
BLOB = described(CONTENT)
EMPTY = described(b"{}")
DATA = manifest.build("application/x.test", EMPTY, (EMPTY,), {})
OTHER = manifest.build("application/x.test", EMPTY, (EMPTY,), {"note": "another one"})
MANIFEST = manifest.describe(DATA)


class Naps:
    """A sleep that takes no time and is remembered."""

    def __init__(self) -> None:
        self.taken: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)


@pytest.fixture
def server() -> Iterator[Hostile]:
    with hostile() as started:
        yield started


@pytest.fixture
def elsewhere() -> Iterator[Hostile]:
    with hostile() as started:
        yield started


@pytest.fixture
def naps() -> Naps:
    return Naps()


@pytest.fixture
def store(server: Hostile, naps: Naps) -> RemoteStore:
    return make(server, naps)


def make(server: Hostile, naps: Naps, timeout_seconds: float = 10.0, **options: tuple[str, ...]) -> RemoteStore:
    stated = StoreOptions(plain_http=True, timeout_seconds=timeout_seconds, **options)  # type: ignore[arg-type]
    return RemoteStore(reference.parse(f"{server.address}/team/x"), stated, Timing(sleep=naps))


def endless(sent: list[int]) -> Iterator[bytes]:
    while True:
        sent.append(1 << 16)
        yield bytes(1 << 16)


def test_a_manifest_with_another_digest(store: RemoteStore, server: Hostile) -> None:
    server.always(Reply(body=OTHER))
    with pytest.raises(Corrupt, match=f"has digest {digest.of_bytes(OTHER)}, not {MANIFEST.digest}"):
        store.manifest(MANIFEST.digest)


def test_a_tag_whose_header_names_another_digest(store: RemoteStore, server: Hostile) -> None:
    server.always(Reply(body=OTHER, headers={"Docker-Content-Digest": MANIFEST.digest}))
    with pytest.raises(Corrupt, match=f"says that it is {MANIFEST.digest}"):
        store.resolve("prod")


def test_a_manifest_that_changes_between_two_reads(store: RemoteStore, server: Hostile) -> None:
    server.by_path({"GET /manifests/prod": Reply(body=DATA), f"GET /manifests/{MANIFEST.digest}": Reply(body=OTHER)})
    found = store.resolve("prod")
    assert found.digest == MANIFEST.digest
    with pytest.raises(Corrupt, match="has digest"):
        store.manifest(found.digest)


@pytest.mark.parametrize("ask", ["resolve", "manifest", "tags", "referrers"])
def test_a_document_without_end(store: RemoteStore, server: Hostile, ask: str) -> None:
    sent: list[int] = []
    server.always(Reply(body=endless(sent)))
    with pytest.raises(Corrupt, match=f"more than {manifest.MAX_BYTES} bytes"):
        getattr(store, ask)(*([] if ask == "tags" else ["prod" if ask == "resolve" else MANIFEST.digest]))
    assert sum(sent) < 4 * manifest.MAX_BYTES


def test_a_blob_that_is_declared_with_another_size(store: RemoteStore, server: Hostile) -> None:
    server.always(Reply(body=CONTENT[:-1]))
    with pytest.raises(Corrupt, match=f"stored with {BLOB.size - 1} bytes, not {BLOB.size} as declared"):
        b"".join(store.blob(BLOB))


def test_a_blob_that_is_too_short(store: RemoteStore, server: Hostile) -> None:
    server.always(Reply(body=iter([CONTENT[:-1]])))
    with pytest.raises(Corrupt, match=f"is {BLOB.size - 1} bytes long, not {BLOB.size} as declared"):
        b"".join(store.blob(BLOB))


def test_a_blob_without_end(store: RemoteStore, server: Hostile) -> None:
    sent: list[int] = []
    server.always(Reply(body=endless(sent)))
    with pytest.raises(Corrupt, match=f"longer than the {BLOB.size} bytes"):
        b"".join(store.blob(BLOB))
    assert sum(sent) < 16 << 20


def test_a_blob_with_another_digest(store: RemoteStore, server: Hostile) -> None:
    server.always(Reply(body=CONTENT[:-1] + b"?"))
    with pytest.raises(Corrupt, match=f"not {BLOB.digest}"):
        b"".join(store.blob(BLOB))


def ranged(seen: Seen, cut: int) -> Reply:
    """As an honest registry answers, but that the connection breaks after `cut` bytes."""
    begin = int(seen.headers.get("range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
    headers = {"Content-Range": f"bytes {begin}-{len(CONTENT) - 1}/{len(CONTENT)}"} if begin else {}
    return Reply(206 if begin else 200, CONTENT[begin:], headers, cut)


def test_a_connection_that_breaks_again_and_again_is_gone_on_with(store: RemoteStore, server: Hostile) -> None:
    server.script = lambda seen: ranged(seen, 100_000)
    assert b"".join(store.blob(BLOB)) == CONTENT
    assert [seen.headers.get("range") for seen in server.seen[:2]] == [None, "bytes=100000-"]
    assert len(server.seen) == 11


def test_a_server_without_ranges_sends_it_all_again(store: RemoteStore, server: Hostile) -> None:
    server.by_path({"GET /" + BLOB.digest: [Reply(body=CONTENT, cut=300_000), Reply(body=CONTENT)]})
    assert b"".join(store.blob(BLOB)) == CONTENT


def test_another_part_than_the_one_asked_for(store: RemoteStore, server: Hostile) -> None:
    wrong = Reply(206, CONTENT[1:], {"Content-Range": f"bytes 1-{BLOB.size - 1}/{BLOB.size}"})
    server.by_path({"GET /" + BLOB.digest: [Reply(body=CONTENT, cut=300_000), wrong]})
    with pytest.raises(Corrupt, match="another part"):
        b"".join(store.blob(BLOB))


def test_connections_that_break_without_progress_are_given_up(store: RemoteStore, server: Hostile) -> None:
    server.script = lambda seen: ranged(seen, 10)
    with pytest.raises(Unreachable, match="the connection failed"):
        b"".join(store.blob(BLOB))
    assert len(server.seen) == MOST_ATTEMPTS


def test_file_paths_that_lead_out_of_the_folder(store: RemoteStore, server: Hostile, tmp_path: Path) -> None:
    layer = Descriptor(
        media_type="application/vnd.cncf.model.weight.v1.raw",
        digest=BLOB.digest,
        size=BLOB.size,
        annotations={manifest.FILEPATH: "../../escaped", manifest.TITLE: "../../escaped"},
    )
    config = Descriptor(media_type=manifest.IMAGE_CONFIG_TYPE, digest=EMPTY.digest, size=EMPTY.size)
    data = manifest.build(manifest.MODEL_TYPE, config, (layer,), {manifest.TITLE: "x", manifest.VERSION: "1"})
    server.by_path({"GET " + digest.of_bytes(data): Reply(body=data), "GET " + BLOB.digest: Reply(body=CONTENT)})
    with pytest.raises(Corrupt, match="leads out of the folder"):
        package.pull(store, digest.of_bytes(data), tmp_path / "a" / "b")
    assert not (tmp_path / "escaped").exists()


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
    with pytest.raises(Refused, match="sends its users to"):
        b"".join(store.blob(BLOB))


def test_a_redirect_in_circles(store: RemoteStore, server: Hostile) -> None:
    server.always(Reply(302, headers={"Location": "/v2/again"}))
    with pytest.raises(Refused, match="more than 5 times"):
        store.resolve("prod")
    assert len(server.seen) == 5


def test_a_push_is_not_redirected(store: RemoteStore, server: Hostile, elsewhere: Hostile) -> None:
    server.by_path({"POST /uploads/": Reply(307, headers={"Location": f"http://{elsewhere.address}/"})})
    with pytest.raises(Refused, match="redirects POST"):
        store.push_blob(BLOB, io.BytesIO(CONTENT))
    assert elsewhere.seen == []


@pytest.mark.usefixtures("credentials")
def test_a_foreign_realm_is_not_asked(store: RemoteStore, server: Hostile, elsewhere: Hostile) -> None:
    server.always(challenge(f"http://{elsewhere.address}/token"))
    with pytest.raises(Refused, match=f"sends its users to '{elsewhere.address}' for a token, which is not its own realm"):
        store.resolve("prod")
    assert elsewhere.seen == []


@pytest.mark.usefixtures("credentials")
def test_a_realm_that_is_allowed_gets_the_credentials_once(server: Hostile, naps: Naps, elsewhere: Hostile) -> None:
    store = make(server, naps, realm_hosts=(elsewhere.address,))
    elsewhere.always(Reply(body=b'{"token": "abc"}'))
    asked = challenge(f"http://{elsewhere.address}/token?x=1")
    server.script = lambda seen: Reply(body=DATA) if seen.headers.get("authorization") == "Bearer abc" else asked
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


@pytest.mark.parametrize("where", ["headers", "document", "blob"])
def test_a_registry_that_sends_a_byte_now_and_then(server: Hostile, naps: Naps, where: str) -> None:
    done = threading.Event()

    def drip() -> Iterator[bytes]:
        while not done.wait(0.02):
            yield b"x"

    store = make(server, naps, timeout_seconds=0.3)
    server.always(Reply(head=drip()) if where == "headers" else Reply(body=drip()))
    try:
        with pytest.raises(Unreachable, match=r"less than 65536 bytes in 0\.3 s"):
            b"".join(store.blob(BLOB)) if where == "blob" else store.resolve("prod")
    finally:
        done.set()


def test_a_storm_of_429_is_waited_out(store: RemoteStore, server: Hostile, naps: Naps) -> None:
    busy = Reply(429, headers={"Retry-After": "2"})
    server.by_path({"GET /manifests/prod": [busy, busy, Reply(503), Reply(body=DATA)]})
    assert store.resolve("prod").digest == MANIFEST.digest
    assert len(naps.taken) == 3
    assert min(naps.taken[:2]) >= 2


def test_a_storm_of_429_without_end_is_given_up(store: RemoteStore, server: Hostile) -> None:
    server.always(
        Reply(429, b'{"errors": [{"code": "TOOMANYREQUESTS", "message": "slow\\u001b[2J down"}]}', {"Retry-After": "0"})
    )
    with pytest.raises(Unreachable, match=r"429: TOOMANYREQUESTS slow\?\[2J down") as caught:
        store.resolve("prod")
    assert len(server.seen) == MOST_ATTEMPTS
    assert caught.value.transient


def test_a_retry_after_of_an_hour_is_not_waited_for(store: RemoteStore, server: Hostile, naps: Naps) -> None:
    server.always(Reply(429, headers={"Retry-After": "3600"}))
    with pytest.raises(Unreachable) as caught:
        store.resolve("prod")
    assert caught.value.hint == "the registry asks to come again in 3600 s"
    assert (len(server.seen), naps.taken) == (1, [])


def test_pages_of_tags(store: RemoteStore, server: Hostile) -> None:
    def script(seen: Seen) -> Reply:
        if "last=b" in seen.path:
            return Reply(body=b'{"tags": ["c", "prod"]}')
        return Reply(body=b'{"tags": ["b", "a"]}', headers={"Link": '</v2/team/x/tags/list?last=b&n=2>; rel="next"'})

    server.script = script
    assert store.tags() == ["a", "b", "c", "prod"]


def test_pages_elsewhere(store: RemoteStore, server: Hostile, elsewhere: Hostile) -> None:
    server.always(Reply(body=b'{"tags": []}', headers={"Link": f'<http://{elsewhere.address}/>; rel="next"'}))
    with pytest.raises(Corrupt, match="next page of its list at localhost"):
        store.tags()
    assert elsewhere.seen == []


def test_pages_without_end(store: RemoteStore, server: Hostile) -> None:
    def script(_: Seen) -> Reply:
        link = f'</v2/team/x/tags/list?last={len(server.seen)}>; rel="next"'
        return Reply(body=b'{"tags": []}', headers={"Link": link})

    server.script = script
    with pytest.raises(Corrupt, match=f"more than {MOST_PAGES} pages"):
        store.tags()
    assert len(server.seen) == MOST_PAGES


@pytest.mark.parametrize("body", [b'{"tags": ["../x"]}', b'{"tags": [1]}', b"[]", b"<html>"])
def test_tags_that_are_none(store: RemoteStore, server: Hostile, body: bytes) -> None:
    server.always(Reply(body=body))
    with pytest.raises(Corrupt):
        store.tags()


def test_what_refers_to_a_manifest(store: RemoteStore, server: Hostile) -> None:
    assert store.referrers(MANIFEST.digest) is None
    entry = {"mediaType": manifest.MANIFEST_TYPE, "digest": EMPTY.digest, "size": 2, "artifactType": "application/x"}
    server.always(Reply(body=json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode()))
    (found,) = store.referrers(MANIFEST.digest) or []
    assert (found.digest, found.artifact_type) == (EMPTY.digest, "application/x")
    server.always(Reply(body=b'{"manifests": [{"mediaType": "x", "digest": "../x", "size": 1}]}'))
    with pytest.raises(Corrupt):
        store.referrers(MANIFEST.digest)


def test_a_tag_that_somebody_else_moves_at_the_same_time(store: RemoteStore, server: Hostile) -> None:
    one, other = ({"Docker-Content-Digest": digest.of_bytes(data)} for data in (DATA, OTHER))
    server.by_path(
        {
            "GET " + MANIFEST.digest: Reply(body=DATA),
            "PUT /manifests/prod": Reply(201),
            "HEAD /manifests/prod": [Reply(headers=one), Reply(headers=other)],
        }
    )
    with pytest.raises(Conflict, match="somebody else moved it as well"):
        store.move_tags({"prod": MANIFEST}, expect={"prod": MANIFEST.digest})


def test_an_upload_to_a_host_that_must_not_see_it(store: RemoteStore, server: Hostile) -> None:
    server.by_path({"POST /uploads/": Reply(202, headers={"Location": "http://example.com/upload"})})
    with pytest.raises(Refused, match="sends its users to"):
        store.push_blob(BLOB, io.BytesIO(CONTENT))


def test_an_upload_without_a_place_to_go_on(store: RemoteStore, server: Hostile) -> None:
    server.by_path({"POST /uploads/": Reply(202)})
    with pytest.raises(Corrupt, match="as its Location"):
        store.push_blob(BLOB, io.BytesIO(CONTENT))


def test_a_registry_that_takes_nothing(store: RemoteStore, server: Hostile) -> None:
    server.by_path({"POST /uploads/": Reply(403, b'{"errors": [{"code": "DENIED"}]}')})
    with pytest.raises(Unreachable, match="answered 403 to POST of an upload: DENIED") as caught:
        store.push_blob(BLOB, io.BytesIO(CONTENT))
    assert caught.value.hint.startswith("docker login")


def test_an_unchanged_tag_costs_one_head_without_a_body(store: RemoteStore, server: Hostile) -> None:
    server.script = lambda seen: Reply(304) if seen.headers.get("if-none-match") == '"x"' else Reply(headers={"ETag": '"x"'})
    assert {store.validator("prod") for _ in range(3)} == {'"x"'}
    assert [seen.method for seen in server.seen] == ["HEAD"] * 3
    assert all(manifest.INDEX_TYPE in seen.headers["accept"] for seen in server.seen)
    server.always(Reply(404))
    with pytest.raises(NotFound):
        store.validator("prod")
