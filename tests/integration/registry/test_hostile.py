"""A registry that lies about what it holds: refused by name, at little cost, and never half believed."""

import gzip
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from model_registry import package
from model_registry.errors import Corrupt, NotFound, Refused, Unreachable
from model_registry.oci import digests, manifest
from model_registry.oci.manifest import Descriptor
from model_registry.stores.oci_registry import MAX_PAGES, RemoteStore
from model_registry.stores.retry import MAX_ATTEMPTS, MAX_THROTTLED
from tests.integration.registry.conftest import make
from tests.integration.registry.content import BLOB, CONTENT, DATA, EMPTY, MANIFEST, OTHER
from tests.integration.registry.hostile import Hostile, Reply, Seen

DOCUMENTS = ("resolve", "manifest", "tags", "referrers")


def endless(sent: list[int]) -> Iterator[bytes]:
    while True:
        sent.append(1 << 16)
        yield bytes(1 << 16)


LIES: dict[str, tuple[str, Reply, str]] = {
    "another digest": (
        "resolve",
        Reply(body=OTHER, headers={"Docker-Content-Digest": MANIFEST.digest}),
        f"its header Docker-Content-Digest names {MANIFEST.digest}",
    ),
    "length": ("blob", Reply(body=CONTENT[:-1]), f"stored with {BLOB.size - 1} bytes, not {BLOB.size} as declared"),
    "unstated length": ("blob", Reply(body=[CONTENT[:-1]]), f"is {BLOB.size - 1} bytes long, not {BLOB.size} as declared"),
    "content": ("blob", Reply(body=CONTENT[:-1] + b"?"), f"not {BLOB.digest}"),
    "tag is a number": ("tags", Reply(body=b'{"tags": [1]}'), ""),
    "tags are a list": ("tags", Reply(body=b"[]"), ""),
    "tags are a page": ("tags", Reply(body=b"<html>"), ""),
    "referrer": ("referrers", Reply(body=b'{"manifests": [{"mediaType": "x", "digest": "../x", "size": 1}]}'), ""),
}


def asked(store: RemoteStore, method: str) -> object:
    if method == "blob":
        return b"".join(store.blob(BLOB))
    return getattr(store, method)(*{"tags": [], "resolve": ["prod"]}.get(method, [MANIFEST.digest]))


@pytest.mark.parametrize("lie", LIES)
def test_an_answer_that_cannot_be_true(store: RemoteStore, server: Hostile, lie: str) -> None:
    method, reply, message = LIES[lie]
    server.always(reply)
    with pytest.raises(Corrupt, match=re.escape(message) or None):
        asked(store, method)


def test_a_manifest_that_changes_between_two_reads(store: RemoteStore, server: Hostile) -> None:
    server.by_path({"GET /manifests/prod": Reply(body=DATA), f"GET /manifests/{MANIFEST.digest}": Reply(body=OTHER)})
    resolved = store.resolve("prod")
    assert resolved.digest == MANIFEST.digest
    with pytest.raises(Corrupt, match=f"has digest {digests.from_bytes(OTHER)}, not {MANIFEST.digest}"):
        store.manifest(resolved.digest)


@pytest.mark.parametrize(("method", "limit"), [*((ask, 4 * manifest.MAX_BYTES) for ask in DOCUMENTS), ("blob", 16 << 20)])
def test_an_answer_without_end(store: RemoteStore, server: Hostile, method: str, limit: int) -> None:
    sent: list[int] = []
    server.always(Reply(body=endless(sent)))
    longer = f"longer than the {BLOB.size} bytes" if method == "blob" else f"more than {manifest.MAX_BYTES} bytes"
    with pytest.raises(Corrupt, match=longer):
        asked(store, method)
    assert sum(sent) < limit


def ranged(seen: Seen, cut: int) -> Reply:
    """As an honest registry answers, but that the connection breaks after `cut` bytes."""
    begin = int(seen.headers.get("range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
    headers = {"Content-Range": f"bytes {begin}-{len(CONTENT) - 1}/{len(CONTENT)}"} if begin else {}
    return Reply(206 if begin else 200, CONTENT[begin:], headers, cut)


def test_a_transfer_continues_after_each_broken_connection(store: RemoteStore, server: Hostile) -> None:
    server.script = lambda seen: ranged(seen, 100_000)
    assert b"".join(store.blob(BLOB)) == CONTENT
    assert [seen.headers.get("range") for seen in server.seen[:2]] == [None, f"bytes=100000-{len(CONTENT) - 1}"]
    assert len(server.seen) == 11


def test_a_server_without_ranges_sends_it_all_again(store: RemoteStore, server: Hostile) -> None:
    server.by_path({"GET /" + BLOB.digest: [Reply(body=CONTENT, cut=300_000), Reply(body=CONTENT)]})
    assert b"".join(store.blob(BLOB)) == CONTENT


def test_a_blob_that_a_proxy_compressed_is_read_from_its_start_again_where_it_broke(
    store: RemoteStore, server: Hostile
) -> None:
    data, encoded = gzip.compress(CONTENT), {"Content-Encoding": "gzip"}
    cut = Reply(body=data, headers=encoded, cut=len(data) // 2)
    server.by_path({"GET /" + BLOB.digest: [cut, Reply(body=data, headers=encoded)]})
    assert b"".join(store.blob(BLOB)) == CONTENT
    assert [seen.headers.get("range") for seen in server.seen] == [None, None]


@pytest.mark.parametrize(
    ("encoding", "body", "message"),
    [
        ("br", CONTENT[1:], "content encoding 'br', which was not requested"),
        ("gzip", b"\x1f\x8b" + CONTENT, "damaged gzip stream"),
        ("gzip", gzip.compress(CONTENT, mtime=0)[:-9], "gzip stream without its end"),
        ("gzip", gzip.compress(bytes(64 << 20), mtime=0), r"longer than the|more than"),
    ],
)
@pytest.mark.parametrize("method", ["resolve", "blob"])
def test_a_content_encoding_that_does_not_read(
    store: RemoteStore, server: Hostile, method: str, encoding: str, body: bytes, message: str
) -> None:
    server.always(Reply(body=body, headers={"Content-Encoding": encoding}))
    with pytest.raises(Corrupt, match=message):
        asked(store, method)


def test_an_error_counts_whatever_its_encoding(store: RemoteStore, server: Hostile) -> None:
    server.always(Reply(418, b"?", {"Content-Encoding": "br"}))
    with pytest.raises(Refused, match="answered 418"):
        store.resolve("prod")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"errors": [{"code": "DENIED", "message": "no"}, {"code": "X"}]}', ": DENIED no; X"),
        (b'{"errors": [{"status": 418, "message": "teapot"}, null]}', ": teapot"),
        (b'{"message": "no"}', ": no"),
        (b'{"details": "no such account"}', ": no such account"),
        (b'{"error": "no"}', ": no"),
        (b'"no"', ": no"),
        (b"\n no\n way ", ": no way"),
        (b"<html><title>\n413 Too Large </title><body>x</body>", ": 413 Too Large"),
        (b"<p>no</p>", ": no"),
        (b"{}", ""),
        (b'{"errors": "x"}', ""),
        (b"[" * 20_000, ""),
        (b"", ""),
    ],
)
def test_the_text_of_an_error_is_shown_whatever_its_form(store: RemoteStore, server: Hostile, body: bytes, text: str) -> None:
    server.always(Reply(418, body))
    with pytest.raises(Refused) as caught:
        store.resolve("prod")
    assert str(caught.value).startswith(f"localhost answered 418 to GET of the manifest of 'prod'{text}")
    assert len(str(caught.value)) < 400


def test_another_part_than_the_one_asked_for(store: RemoteStore, server: Hostile) -> None:
    wrong = Reply(206, CONTENT[1:], {"Content-Range": f"bytes 1-{BLOB.size - 1}/{BLOB.size}"})
    server.by_path({"GET /" + BLOB.digest: [Reply(body=CONTENT, cut=300_000), wrong]})
    with pytest.raises(Corrupt, match="that was not requested"):
        b"".join(store.blob(BLOB))


def test_connections_that_break_without_progress_are_given_up(store: RemoteStore, server: Hostile) -> None:
    server.script = lambda seen: ranged(seen, 10)
    with pytest.raises(Unreachable, match="the connection failed"):
        b"".join(store.blob(BLOB))
    assert len(server.seen) == MAX_ATTEMPTS


def test_file_paths_that_lead_out_of_the_folder(store: RemoteStore, server: Hostile, tmp_path: Path) -> None:
    layer = Descriptor(
        media_type="application/vnd.cncf.model.weight.v1.raw",
        digest=BLOB.digest,
        size=BLOB.size,
        annotations={manifest.FILEPATH: "../../escaped", manifest.TITLE: "../../escaped"},
    )
    config = Descriptor(media_type=manifest.IMAGE_CONFIG_TYPE, digest=EMPTY.digest, size=EMPTY.size)
    data = manifest.build(manifest.MODEL_TYPE, config, (layer,), {manifest.TITLE: "x", manifest.VERSION: "1"})
    server.by_path({"GET " + digests.from_bytes(data): Reply(body=data), "GET " + BLOB.digest: Reply(body=CONTENT)})
    with pytest.raises(Corrupt, match="leads out of the folder"):
        package.pull(store, digests.from_bytes(data), tmp_path / "a" / "b")
    assert not (tmp_path / "escaped").exists()


@pytest.mark.parametrize("where", ["headers", "document", "blob"])
def test_a_registry_that_sends_a_byte_now_and_then(server: Hostile, naps: list[float], where: str) -> None:
    finished = threading.Event()

    def drip() -> Iterator[bytes]:
        while not finished.wait(0.02):
            yield b"x"

    store = make(server, naps, timeout_seconds=0.3)
    server.always(Reply(head=drip()) if where == "headers" else Reply(body=drip()))
    try:
        with pytest.raises(Unreachable, match=r"less than 65536 bytes in 0\.3 s"):
            b"".join(store.blob(BLOB)) if where == "blob" else store.resolve("prod")
    finally:
        finished.set()


def test_a_storm_of_429_is_waited_out_unless_it_has_no_end(store: RemoteStore, server: Hostile, naps: list[float]) -> None:
    busy = Reply(429, headers={"Retry-After": "2"})
    server.by_path({"GET /manifests/prod": [busy, busy, Reply(503), Reply(body=DATA)]})
    assert store.resolve("prod").digest == MANIFEST.digest
    assert len(naps) == 3
    assert min(naps[:2]) >= 2

    server.seen.clear()
    server.always(
        Reply(429, b'{"errors": [{"code": "TOOMANYREQUESTS", "message": "slow\\u001b[2J down"}]}', {"Retry-After": "0"})
    )
    with pytest.raises(Unreachable, match=r"429: TOOMANYREQUESTS slow\\x1b\[2J down") as caught:
        store.resolve("prod")
    assert len(server.seen) == MAX_THROTTLED
    assert caught.value.transient

    server.seen.clear()
    naps.clear()
    server.always(Reply(429, headers={"Retry-After": "3600"}))
    with pytest.raises(Unreachable) as caught:
        store.resolve("prod")
    assert caught.value.hint == "the registry asks to wait with the next request for 3600 s"
    assert (len(server.seen), naps) == (1, [])


def test_pages_of_tags(store: RemoteStore, server: Hostile) -> None:
    def script(seen: Seen) -> Reply:
        if "last=b" in seen.path:
            return Reply(body=b'{"tags": ["c", "prod"]}')
        return Reply(body=b'{"tags": ["b", "a"]}', headers={"Link": '</v2/team/x/tags/list?last=b&n=2>; rel="next"'})

    server.script = script
    assert store.tags() == ["a", "b", "c", "prod"]


def test_pages_elsewhere(store: RemoteStore, server: Hostile, elsewhere: Hostile) -> None:
    server.always(Reply(body=b'{"tags": []}', headers={"Link": f'<http://{elsewhere.address}/>; rel="next"'}))
    with pytest.raises(Corrupt, match="next page of its list at another host, localhost"):
        store.tags()
    assert elsewhere.seen == []


def test_pages_without_end(store: RemoteStore, server: Hostile) -> None:
    def script(_: Seen) -> Reply:
        link = f'</v2/team/x/tags/list?last={len(server.seen)}>; rel="next"'
        return Reply(body=b'{"tags": []}', headers={"Link": link})

    server.script = script
    with pytest.raises(Corrupt, match=f"more than {MAX_PAGES} pages"):
        store.tags()
    assert len(server.seen) == MAX_PAGES


def test_referrers_of_a_manifest(store: RemoteStore, server: Hostile) -> None:
    assert store.referrers(MANIFEST.digest) is None
    entry = {"mediaType": manifest.MANIFEST_TYPE, "digest": EMPTY.digest, "size": 2, "artifactType": "application/x"}
    server.always(Reply(body=json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode()))
    (referrer,) = store.referrers(MANIFEST.digest) or []
    assert (referrer.digest, referrer.artifact_type) == (EMPTY.digest, "application/x")


def test_an_unchanged_tag_costs_one_head_without_a_body(store: RemoteStore, server: Hostile) -> None:
    server.script = lambda seen: Reply(304) if seen.headers.get("if-none-match") == '"x"' else Reply(headers={"ETag": '"x"'})
    assert {store.validator("prod") for _ in range(3)} == {'"x"'}
    assert [seen.method for seen in server.seen] == ["HEAD"] * 3
    assert all(manifest.INDEX_TYPE in seen.headers["accept"] for seen in server.seen)
    server.always(Reply(404))
    with pytest.raises(NotFound):
        store.validator("prod")
