"""A registry in memory for the lying server, with the deviations of registries in use: each is an attribute, off by default."""

import base64
import gzip
import hashlib
import itertools
import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

from tests.integration.registry.hostile import Reply, Script, Seen

INDEX = "application/vnd.oci.image.index.v1+json"
PAGE = b"<html><head><title>413 Request Entity Too Large</title></head><body><center>nginx</center></body></html>"
GHCR_TEXT = b'{"errors":[{"code":"TOO_LARGE","message":"the request body exceeds the maximum permissible limit of 4.00MiB"}]}'
CREDENTIALS = "Basic " + base64.b64encode(b"user:secret").decode()


class Clock:
    """A clock that moves only in `sleep`."""

    def __init__(self) -> None:
        self.now = 0.0

    def read(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Quirks:
    """What the registry does otherwise than others. Statuses of 0 and limits of None stand for none of it."""

    chunk_limit: int | None = None  # bytes of a PATCH with a Content-Range: 416
    body_limit: int | None = None  # bytes of any request: 413 and a page, as of a proxy
    no_patch: int = 0  # the answer to every PATCH
    keeps: int | None = None  # bytes of a PATCH that are stored; the Range of the answer says so
    referrers: Reply | None = None  # the answer of the referrers API; None: the API works
    confirms: bool = True  # OCI-Subject in answers
    digest_tags: bool = False  # the tag sha256-<hex> is read as the digest
    lag: float = 0.0  # seconds until a write is visible
    replicas: bool = False  # some readers see a write at once, others after the lag
    immutable: bool = False  # tags never change
    deletes: bool = True
    tags_page: int | None = None  # tags of a page, without Link
    forbids_absent: bool = False  # 403 for what does not exist
    hides: bool = False  # 404 without credentials, a challenge at /v2/ alone
    zips: bool = False  # gzip in front of manifests and lists
    busy_share: float = 0.0  # of requests that are answered 429
    retry_after: str = ""
    seed: int = 7  # of what happens by chance


@dataclass
class Registry:
    """One repository. `host` is the server's address, for the realm of tokens."""

    quirks: Quirks = field(default_factory=Quirks)
    clock: Clock = field(default_factory=Clock)
    host: str = ""

    def __post_init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.writes: list[tuple[float, str, bytes | None]] = []
        self.uploads: dict[str, bytes] = {}
        self._numbers = itertools.count(1)
        self._dice = random.Random(self.quirks.seed)

    def __call__(self, seen: Seen) -> Reply:
        quirks, path = self.quirks, urlsplit(seen.path).path
        if self._dice.random() < quirks.busy_share:
            return Reply(429, headers={"Retry-After": quirks.retry_after} if quirks.retry_after else {})
        if quirks.body_limit is not None and len(seen.body) > quirks.body_limit:
            return Reply(413, PAGE, {"Content-Type": "text/html"})
        if path == "/token":
            return Reply(
                body=b'{"token": "abc", "expires_in": null}' if seen.headers.get("authorization") == CREDENTIALS else b"{}"
            )
        if quirks.hides and seen.headers.get("authorization") != "Bearer abc":
            challenge = f'Bearer realm="http://{self.host}/token",service="registry"'
            return Reply(401, headers={"WWW-Authenticate": challenge}) if path == "/v2/" else Reply(404)
        if path == "/v2/":
            return Reply()
        kind, _, name = path.removeprefix("/v2/team/x/").partition("/")
        reply = {"manifests": self._manifests, "blobs": self._blobs, "tags": self._tags, "referrers": self._referrers}[kind](
            seen, name
        )
        if quirks.forbids_absent and reply.status == 404:
            return Reply(403, b'{"errors": [{"code": "DENIED"}]}')
        if quirks.zips and reply.status == 200 and kind != "blobs" and isinstance(reply.body, bytes):
            return Reply(200, gzip.compress(reply.body), {**reply.headers, "Content-Encoding": "gzip"})
        return reply

    def shown(self) -> dict[str, bytes]:
        """What readers see now, by tag and digest."""
        shown: dict[str, bytes] = {}
        lag = self.quirks.lag * (self._dice.random() < 0.5 if self.quirks.replicas else 1)
        for at, name, data in self.writes:
            if at <= self.clock.now - lag:
                if data is None:
                    deleted = shown.pop(name, None)
                    shown = {each: value for each, value in shown.items() if value != deleted}
                else:
                    shown[name] = data
        return shown

    def tags(self) -> list[str]:
        return sorted(name for name in self.shown() if ":" not in name)

    def _manifests(self, seen: Seen, name: str) -> Reply:
        shown = self.shown()
        if self.quirks.digest_tags and re.fullmatch(r"sha256-[0-9a-f]{64}", name):
            name = name.replace("-", ":")
        if seen.method == "PUT":
            return self._put(seen, name)
        if seen.method == "DELETE":
            if not self.quirks.deletes:
                return Reply(405)
            self.writes.append((self.clock.now, name, None))
            return Reply(202)
        if name not in shown:
            return Reply(404)
        kind = json.loads(shown[name]).get("mediaType", "")
        return Reply(body=shown[name], headers={"Docker-Content-Digest": digest(shown[name]), "Content-Type": kind})

    def _put(self, seen: Seen, name: str) -> Reply:
        if ":" in name and name != digest(seen.body):
            return Reply(400, b'{"errors": [{"code": "DIGEST_INVALID", "message": "provided digest did not match"}]}')
        manifests = {each: data for _, each, data in self.writes}
        if self.quirks.immutable and ":" not in name and manifests.get(name) is not None:
            return Reply(409, b'{"errors": [{"code": "TAG_INVALID", "message": "the tag cannot be overwritten"}]}')
        self.writes += [(self.clock.now, each, seen.body) for each in dict.fromkeys((digest(seen.body), name))]
        subject = json.loads(seen.body).get("subject")
        return Reply(201, headers={"OCI-Subject": subject["digest"]} if subject and self.quirks.confirms else {})

    def _blobs(self, seen: Seen, name: str) -> Reply:
        if seen.method == "POST":
            upload = str(next(self._numbers))
            self.uploads[upload] = b""
            return Reply(202, headers={"Location": f"/v2/team/x/blobs/uploads/{upload}"})
        if name.startswith("uploads/"):
            return self._upload(seen, name.removeprefix("uploads/"))
        return Reply(body=self.blobs[name]) if name in self.blobs else Reply(404)

    def _upload(self, seen: Seen, upload: str) -> Reply:
        quirks, headers = self.quirks, {"Location": f"/v2/team/x/blobs/uploads/{upload}"}
        if upload not in self.uploads:
            return Reply(404)
        if seen.method == "DELETE":
            del self.uploads[upload]
            return Reply(204)
        if seen.method == "PATCH":
            if quirks.no_patch:
                return Reply(quirks.no_patch)
            if quirks.chunk_limit is not None and len(seen.body) > quirks.chunk_limit:
                return Reply(416, GHCR_TEXT)
            if int(seen.headers["content-range"].partition("-")[0]) != len(self.uploads[upload]):
                return Reply(416)
            self.uploads[upload] += seen.body[: quirks.keeps]
        if seen.method == "PUT":
            data = self.uploads.pop(upload) + seen.body
            expected = parse_qs(urlsplit(seen.path).query)["digest"][0]
            if digest(data) != expected:
                return Reply(400, b'{"errors": [{"code": "DIGEST_INVALID"}]}')
            self.blobs[expected] = data
            return Reply(201)
        status = {"GET": 204}.get(seen.method, 202)
        return Reply(status, headers=headers | {"Range": f"0-{max(0, len(self.uploads[upload]) - 1)}"})

    def _tags(self, seen: Seen, _: str) -> Reply:
        last = parse_qs(urlsplit(seen.path).query).get("last", [""])[0]
        tags = self.tags()
        if self.quirks.tags_page is not None:
            tags = [tag for tag in tags if tag > last][: self.quirks.tags_page]
        return Reply(body=json.dumps({"tags": tags}).encode()) if self.shown() else Reply(404)

    def _referrers(self, _: Seen, subject: str) -> Reply:
        if self.quirks.referrers is not None:
            return self.quirks.referrers
        entries = [
            {
                "mediaType": document["mediaType"],
                "digest": name,
                "size": len(data),
                "artifactType": document.get("artifactType"),
            }
            for name, data in self.shown().items()
            if ":" in name and ((document := json.loads(data)).get("subject") or {}).get("digest") == subject
        ]
        return Reply(body=json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).encode())


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def answering(registry: Registry, when: Callable[[Seen], bool], reply: Callable[[Seen], Reply]) -> Script:
    """Return a script that answers as the registry does, except for the requests that `when` chooses."""
    return lambda seen: reply(seen) if when(seen) else registry(seen)
