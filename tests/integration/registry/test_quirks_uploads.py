"""Uploads and downloads at registries and proxies that deviate, by public reports on other clients."""

import gzip
import io
import itertools
import random
import re

import httpx
import pytest

from model_registry.errors import Corrupt, Refused
from model_registry.oci import reference
from model_registry.stores.base import StoreOptions
from model_registry.stores.oci_registry import RemoteStore
from model_registry.stores.retry import MAX_ATTEMPTS, Timing
from tests.conformance.store import described
from tests.integration.registry.conftest import PLAIN, Start, push
from tests.integration.registry.content import BLOB, CONTENT
from tests.integration.registry.hostile import Hostile, Reply, Seen
from tests.integration.registry.quirks import GHCR_TEXT, answering, digest
from tests.integration.registry.server import DockerRegistry

MIB = 1 << 20
LARGE = random.Random(3).randbytes(9 * MIB + 5)
SMALL = random.Random(4).randbytes(3 * MIB)
BYTES = bytes(MIB)  # what a proxy compresses


@pytest.mark.parametrize("status", [200, 201, 204])
def test_a_chunk_may_be_confirmed_by_another_status_and_without_a_location(start: Start, server: Hostile, status: int) -> None:
    """Pulp answers PATCH with 204 (pulp_container 2199)."""
    store, registry = start(chunk_limit=4 * MIB)

    def patched(seen: Seen) -> Reply:
        reply = registry(seen)
        return Reply(status) if reply.status == 202 else reply

    server.script = answering(registry, lambda seen: seen.method == "PATCH", patched)
    push(store, LARGE)
    assert registry.blobs[digest(LARGE)] == LARGE


@pytest.mark.parametrize("status", [200, 202, 204, 400, 409])
def test_the_last_request_of_an_upload_counts_by_whether_the_blob_is_stored(start: Start, server: Hostile, status: int) -> None:
    """Nexus answers 400 where another push has just stored the same blob (nexus-public 967)."""
    store, registry = start()

    def put(seen: Seen) -> Reply:
        registry(seen)
        return Reply(status, b'{"errors": [{"code": "BLOB_UPLOAD_INVALID", "message": "cannot be updated"}]}')

    server.script = answering(registry, lambda seen: seen.method == "PUT", put)
    for data in (LARGE, SMALL):
        push(store, data)
        assert registry.blobs[digest(data)] == data


def test_a_blob_that_is_refused_at_the_end_is_an_error_in_the_registry_s_words(start: Start, server: Hostile) -> None:
    store, registry = start()
    refused = Reply(400, b'{"errors": [{"code": "BLOB_UPLOAD_INVALID", "message": "layers of this kind are not taken"}]}')
    server.script = answering(registry, lambda seen: seen.method == "PUT", lambda _: refused)
    for data in (b"", SMALL, LARGE):
        with pytest.raises(Refused, match="layers of this kind are not taken"):
            push(store, data)
    assert len(server.asked("PUT")) == 4  # a large one in parts and then at once


@pytest.mark.parametrize("status", [413, 416])
def test_a_limit_that_no_request_keeps_is_shown_in_the_registry_s_words(start: Start, server: Hostile, status: int) -> None:
    store, registry = start()
    server.script = answering(registry, lambda seen: len(seen.body) > 0, lambda _: Reply(status, GHCR_TEXT))
    with pytest.raises(Refused, match=rf"{status} to PUT .*TOO_LARGE the request body exceeds .* of 4\.00MiB"):
        push(store, LARGE)
    assert not registry.uploads


def test_an_offset_that_is_wrong_by_one_byte_damages_nothing(start: Start, server: Hostile) -> None:
    """Zuul's registry states the size as the last byte (docker/for-linux 1296)."""
    store, registry = start()

    def off_by_one(seen: Seen) -> Reply:
        if seen.method == "PUT":
            return registry(seen)
        upload = seen.path.rpartition("/")[2]
        if seen.method == "PATCH":
            registry.uploads[upload] += seen.body
        return Reply(204 if seen.method == "GET" else 202, headers={"Range": f"0-{len(registry.uploads[upload])}"})

    is_upload = re.compile(r"/v2/team/x/blobs/uploads/\d+").fullmatch
    server.script = answering(registry, lambda seen: bool(is_upload(seen.path)) and seen.method != "DELETE", off_by_one)
    push(store, LARGE)
    other = LARGE[::-1]
    server.cuts = [5_000_000]
    push(store, other)
    assert (registry.blobs[digest(LARGE)], registry.blobs[digest(other)]) == (LARGE, other)


@pytest.mark.parametrize(("limit", "data"), [(4 * MIB, LARGE), (MIB, LARGE), (MIB, SMALL)])
def test_a_proxy_that_closes_before_it_has_read_too_large_a_request(
    start: Start, server: Hostile, limit: int, data: bytes
) -> None:
    """The 413 is lost with the connection (envoy 2929, psf/requests 2422)."""
    store, registry = start()
    server.limit = limit
    push(store, data)
    assert registry.blobs[digest(data)] == data


def test_a_connection_that_breaks_while_a_chunk_is_sent_leads_to_smaller_chunks(start: Start, server: Hostile) -> None:
    store, registry = start()
    server.cuts = [100_000] * 4

    def forgetful(seen: Seen) -> Reply:
        return Reply(404) if seen.method == "GET" and "/uploads/" in seen.path else registry(seen)

    server.script = forgetful
    push(store, LARGE)
    assert registry.blobs[digest(LARGE)] == LARGE
    assert len(server.asked("PATCH")) > MAX_ATTEMPTS


def test_an_upload_s_address_is_sent_back_as_the_registry_wrote_it(start: Start, server: Hostile) -> None:
    """An upload URL is opaque (distribution 232): escapes, bare names and signs stay as they are."""
    store, registry = start()
    state = "_state=a+b%2Fc%3D/=~&flag&empty="

    def stated(seen: Seen) -> Reply:
        return Reply(202, headers={"Location": registry(seen).headers["Location"] + "?" + state})

    server.script = answering(registry, lambda seen: seen.method == "POST", stated)
    push(store, SMALL)
    (last_request,) = server.asked("PUT")
    assert last_request.path.partition("?")[2] == f"{state}&digest={digest(SMALL).replace(':', '%3A')}"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 501])
def test_a_blob_that_must_not_be_mounted_is_sent(start: Start, server: Hostile, status: int) -> None:
    """Without the right to read the other repository (buildkit 2454, containerd 14086)."""
    _, registry = start()
    options = StoreOptions(plain_http=True, mount_from=("other/y",))
    store = RemoteStore(reference.parse(f"{server.address}/team/x"), options, Timing(sleep=lambda _: None))
    server.script = answering(registry, lambda seen: "mount=" in seen.path, lambda _: Reply(status))
    push(store, SMALL)
    assert registry.blobs[digest(SMALL)] == SMALL


def test_a_token_that_is_not_given_for_both_repositories_of_a_mount(start: Start, server: Hostile) -> None:
    """The token itself is denied (manifest-tool 53)."""
    _, registry = start(hides=True)
    options = StoreOptions(plain_http=True, mount_from=("other/y",))
    store = RemoteStore(reference.parse(f"{server.address}/team/x"), options, Timing(sleep=lambda _: None))

    def token(seen: Seen) -> Reply:
        return Reply(403) if "other" in seen.path else Reply(body=b'{"token": "abc"}')

    server.script = answering(registry, lambda seen: seen.path.startswith("/token"), token)
    push(store, SMALL)
    assert registry.blobs[digest(SMALL)] == SMALL


@pytest.mark.parametrize("ranges", [True, False])
def test_a_head_without_the_length_of_a_blob_is_no_damage(start: Start, server: Hostile, ranges: bool) -> None:
    """Proxies answer HEAD with a Content-Length of 0 (godoxy 169)."""
    store, registry = start()
    push(store, SMALL)
    part = Reply(206, SMALL[:1], {"Content-Range": f"bytes 0-0/{len(SMALL)}"})

    def blob(seen: Seen) -> Reply:
        return Reply() if seen.method == "HEAD" else part if ranges else registry(seen)

    server.script = answering(registry, lambda seen: seen.path.endswith(digest(SMALL)), blob)
    server.seen.clear()
    push(store, SMALL)
    assert server.asked("POST") == []
    registry.blobs[digest(SMALL)] = b""
    part.headers["Content-Range"] = "bytes */0"
    with pytest.raises(Corrupt, match="with 0 bytes"):
        push(store, SMALL)


def test_a_head_without_a_length_and_a_compressed_blob_are_no_damage(start: Start, server: Hostile) -> None:
    store, registry = start()
    push(store, BYTES)

    def blob(seen: Seen) -> Reply:
        return Reply() if seen.method == "HEAD" else Reply(200, gzip.compress(BYTES, mtime=0), {"Content-Encoding": "gzip"})

    server.script = answering(registry, lambda seen: seen.path.endswith(digest(BYTES)), blob)
    push(store, BYTES)
    assert b"".join(store.blob(described(BYTES))) == BYTES


def test_a_blob_whose_own_compression_is_named_as_the_encoding_is_read(start: Start, server: Hostile) -> None:
    """Apache's httpd names what it recognises (moby 17595)."""
    store, _ = start()
    data = gzip.compress(CONTENT, mtime=0)
    server.always(Reply(body=data, headers={"Content-Encoding": "x-gzip"}))
    assert b"".join(store.blob(described(data))) == data


def test_a_range_that_stays_at_the_first_chunk_is_no_place_to_resume(start: Start, server: Hostile) -> None:
    """Amazon's registry answers PATCH with 201 and the range of the first chunk (containers-roadmap 2831)."""
    store, registry = start(chunk_limit=4 * MIB)

    def stale(seen: Seen) -> Reply:
        reply = registry(seen)
        return Reply(201, headers=reply.headers | {"Range": f"0-{4 * MIB - 1}"}) if reply.status == 202 else reply

    server.script = answering(registry, lambda seen: seen.method == "PATCH", stale)
    push(store, LARGE)
    assert registry.blobs[digest(LARGE)] == LARGE


def test_an_upload_that_only_one_of_three_replicas_knows_is_restarted_until_it_arrives(start: Start, server: Hostile) -> None:
    """Replicas without a common store answer "blob upload unknown" (harbor 15234)."""
    store, registry = start()
    numbers = itertools.count()

    def unknown(seen: Seen) -> bool:
        return "/uploads/" in seen.path and seen.method in ("PATCH", "PUT") and next(numbers) % 3 != 2

    server.script = answering(registry, unknown, lambda _: Reply(404, b'{"errors": [{"code": "BLOB_UPLOAD_UNKNOWN"}]}'))
    for data in (LARGE, SMALL):
        push(store, data)
        assert registry.blobs[digest(data)] == data


@pytest.mark.parametrize("status", [400, 405, 416, 501])
def test_a_registry_without_open_ranges_or_any(store: RemoteStore, server: Hostile, status: int) -> None:
    """ggcr's registry answers 416 to `bytes=N-` (stereoscope 695), Artifactory knows no ranges (oras-go 368)."""
    closed = re.compile(r"bytes=(\d+)-(\d+)")
    for knows in (True, False):
        server.seen.clear()

        def script(seen: Seen, knows: bool = knows) -> Reply:
            if "range" not in seen.headers:
                cut = 500_000 if len(server.seen) == 1 else None
                return Reply(body=CONTENT, cut=cut)
            requested = closed.fullmatch(seen.headers["range"])
            if not knows or requested is None:
                return Reply(status)
            begin, end = int(requested[1]), int(requested[2])
            return Reply(206, CONTENT[begin : end + 1], {"Content-Range": f"bytes {begin}-{end}/{len(CONTENT)}"})

        server.script = script
        assert b"".join(store.blob(BLOB)) == CONTENT
        assert len(server.seen) == (2 if knows else 3)


@pytest.mark.debian("docker-registry")
@pytest.mark.parametrize("status", [413, 416])
def test_chunks_arrive_at_a_real_registry_behind_a_limit(
    registry: DockerRegistry, server: Hostile, repository: str, status: int
) -> None:
    """docker-registry takes the chunks, each at the address that it stated for the one before."""
    with httpx.Client(base_url=f"http://{registry.address}") as real:

        def limited(seen: Seen) -> Reply:
            if len(seen.body) > 4 * MIB:
                return Reply(status, b'{"errors": [{"code": "TOO_LARGE", "message": "4.00MiB"}]}')
            drop = {"host", "connection", "accept-encoding"}
            headers = {name: value for name, value in seen.headers.items() if name not in drop}
            answer = real.request(seen.method, seen.path, headers=headers, content=seen.body)
            response_headers = {name: value for name, value in answer.headers.items() if name in ("location", "range")}
            if "location" in response_headers:
                response_headers["location"] = response_headers["location"].replace(registry.address, server.address)
            return Reply(answer.status_code, answer.content, response_headers)

        server.script = limited
        path = repository.partition("/")[2]
        store = RemoteStore(reference.parse(f"{server.address}/{path}"), PLAIN, Timing(sleep=lambda _: None))
        store.push_blob(described(LARGE), io.BytesIO(LARGE))
    assert registry.blob(digest(LARGE)).read_bytes() == LARGE
    assert len(server.asked("PATCH")) == 4
