"""A registry that takes uploads badly: cut off, sent elsewhere, forgotten, overtaken."""

import io
import itertools
import random

import pytest

from model_registry.errors import Conflict, Corrupt, Refused, RegistryError, Unreachable
from model_registry.oci import digests
from model_registry.stores.oci_registry import RemoteStore
from model_registry.stores.retry import MAX_ATTEMPTS
from model_registry.stores.upload import WHOLE_BYTES
from tests.conformance.store import described
from tests.integration.registry.content import BLOB, CONTENT, DATA, MANIFEST, OTHER
from tests.integration.registry.hostile import Hostile, Reply, Seen


def test_a_push_is_not_redirected(store: RemoteStore, server: Hostile, elsewhere: Hostile) -> None:
    server.by_path({"POST /uploads/": Reply(307, headers={"Location": f"http://{elsewhere.address}/"})})
    with pytest.raises(Refused, match="redirects POST"):
        store.push_blob(BLOB, io.BytesIO(CONTENT))
    assert elsewhere.seen == []


def test_a_tag_that_another_writer_moves_at_the_same_time(store: RemoteStore, server: Hostile) -> None:
    headers, other_headers = ({"Docker-Content-Digest": digests.from_bytes(data)} for data in (DATA, OTHER))
    server.by_path(
        {
            "GET " + MANIFEST.digest: Reply(body=DATA),
            "PUT /manifests/prod": Reply(201),
            "HEAD /manifests/prod": [Reply(headers=headers), Reply(headers=other_headers)],
        }
    )
    with pytest.raises(Conflict, match="another writer moved it too"):
        store.move_tags({"prod": MANIFEST}, expect={"prod": MANIFEST.digest})


STREAM = random.randbytes(3 * WHOLE_BYTES)


def taking(server: Hostile, *, forgets: bool) -> None:
    """Let the server take uploads as the specification says, each answer with another Location."""
    turns = itertools.count(1)

    def script(seen: Seen) -> Reply:
        if seen.method == "HEAD":
            return Reply(404)
        headers = {"Location": f"/v2/upload?turn={next(turns)}"}
        if seen.method == "GET" and not forgets:
            received = sum(len(patch.body) for patch in server.asked("PATCH"))
            return Reply(204, headers=headers | {"Range": f"0-{received - 1}"})
        return Reply({"POST": 202, "PATCH": 202, "PUT": 201}.get(seen.method, 404), headers=headers)

    server.script = script


def test_a_stream_continues_where_it_broke(store: RemoteStore, server: Hostile) -> None:
    taking(server, forgets=False)
    server.cuts = [5_000_000, 100_000]
    store.push_blob(described(STREAM), io.BytesIO(STREAM))
    patches = server.asked("PATCH")
    assert [seen.headers["content-range"].partition("-")[0] for seen in patches] == ["0", "5000000", "5100000"]
    assert b"".join(seen.body for seen in patches) == STREAM
    used = [seen.path.rpartition("turn=")[2] for seen in server.seen if seen.method in ("PATCH", "GET")]
    assert used == ["1", "1", "2", "2", "3"]  # the newest Location, always
    (last_request,) = server.asked("PUT")
    assert last_request.path == f"/v2/upload?turn=4&digest={described(STREAM).digest.replace(':', '%3A')}"


def test_a_stream_restarts_if_the_registry_forgot_it(store: RemoteStore, server: Hostile) -> None:
    taking(server, forgets=True)
    server.cuts = [5_000_000]
    store.push_blob(described(STREAM), io.BytesIO(STREAM))
    assert server.asked("PATCH")[-1].body == STREAM
    assert len(server.asked("POST")) == 2


def test_a_stream_that_never_gets_through_is_given_up(store: RemoteStore, server: Hostile) -> None:
    taking(server, forgets=True)
    server.cuts = [10] * 100
    with pytest.raises(Unreachable, match="the connection failed"):
        store.push_blob(described(STREAM), io.BytesIO(STREAM))
    assert len(server.asked("PATCH")) == MAX_ATTEMPTS


def test_a_stream_of_other_content_is_called_off(store: RemoteStore, server: Hostile) -> None:
    taking(server, forgets=False)
    with pytest.raises(Corrupt, match="the content to be stored"):
        store.push_blob(described(STREAM), io.BytesIO(STREAM[:-1] + bytes([STREAM[-1] ^ 1])))
    assert server.asked("PUT") == []
    assert len(server.asked("DELETE")) == 1


@pytest.mark.parametrize(
    ("reply", "error", "message"),
    [
        (Reply(202, headers={"Location": "http://example.com/upload"}), Refused, "answers with the URL"),
        (Reply(202), Corrupt, "with the Location '', which is not a valid URL"),
        (Reply(403, b'{"errors": [{"code": "DENIED"}]}'), Unreachable, "answered 403 to POST of an upload: DENIED"),
    ],
)
def test_a_rejected_upload(store: RemoteStore, server: Hostile, reply: Reply, error: type[RegistryError], message: str) -> None:
    server.by_path({"POST /uploads/": reply})
    with pytest.raises(error, match=message):
        store.push_blob(BLOB, io.BytesIO(CONTENT))
