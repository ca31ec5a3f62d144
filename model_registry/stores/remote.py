"""A repository in an OCI registry, over HTTP. Specification: OCI distribution-spec 1.1.

Registries have no compare-and-swap: a tag is written, then read back, so that a lost race is seen in nearly all cases and
never silently overwrites a third writer's move. Tags of one repository should have one writer at a time.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO

import httpx
import msgspec

from model_registry.errors import BadReference, Conflict, Corrupt, NotFound, Refused
from model_registry.oci import digests, manifest
from model_registry.oci.manifest import Descriptor
from model_registry.oci.reference import Reference, is_tag
from model_registry.stores import DEFAULTS, StoreOptions, download
from model_registry.stores.http import Answer, Call, Client
from model_registry.stores.retry import Timing
from model_registry.stores.transport import MOST_CONNECTIONS
from model_registry.stores.upload import Target, Upload

PAGE = 1000  # tags asked for at a time
MOST_PAGES = 200
SETTLING_SECONDS = (0.1, 0.3, 0.9)  # while others push the same content, or move a tag, docker-registry may not know it
_TYPES = (manifest.MANIFEST_TYPE, manifest.INDEX_TYPE, manifest.DOCKER_MANIFEST_TYPE, manifest.DOCKER_INDEX_TYPE)
_ACCEPT = {"Accept": ", ".join(_TYPES)}
_NEXT = re.compile(r'\s*<([^>]+)>\s*;(?:[^,]*;)?\s*rel="?next"?')  # RFC 8288
_MEDIA_TYPE = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9!#$&^_.+-]{0,126}/[a-zA-Z0-9][a-zA-Z0-9!#$&^_.+-]{0,126}")  # RFC 6838


class _Tags(msgspec.Struct):
    tags: list[str] | None = None


class _Index(msgspec.Struct):
    manifests: list[Descriptor] = []


class RemoteStore:
    """See `Store`. Any number of threads may use one."""

    def __init__(self, reference: Reference, options: StoreOptions = DEFAULTS, timing: Timing = Timing()) -> None:  # noqa: B008
        """Touches nothing yet. Raises Misconfigured."""
        host, _, path = reference.repository.partition("/")
        self._path = f"library/{path}" if host == "docker.io" and "/" not in path else path
        self.repository, self._progress = reference.repository, options.progress
        self._client = Client(host, options, timing)
        self._sleep = timing.sleep
        self._pull, self._push = (f"repository:{self._path}:pull",), (f"repository:{self._path}:pull,push",)
        mounts = tuple((name, f"repository:{name}:pull") for name in options.mount_from)
        self._target = Target(f"/v2/{self._path}/blobs", self._push[0], mounts, self._holds)
        self._validators: dict[str, str] = {}

    def validator(self, tag: str) -> str:
        """See `Store`: one HEAD. A tag that went away and came back to the same manifest in between is not noticed."""
        known = self._validators.get(tag)
        condition = {"If-None-Match": known} if known else {}
        call = Call("HEAD", self._manifests(tag), self._pull, _ACCEPT | condition)
        answer = self._client.ask(call)
        if answer.status == 304 and known:
            return known
        if answer.status == 404:
            raise self._no_tag(tag)
        if answer.status != 200:
            raise answer.error(f"HEAD of the tag {tag!r}")
        found: str = answer.headers.get("ETag") or answer.headers.get("Docker-Content-Digest", "")
        if not found:
            return self.resolve(tag).digest
        self._validators[tag] = found
        return found

    def tags(self) -> list[str]:
        """See `Store`. A registry does not tell an empty repository from one that does not exist: both have no tags."""
        found: set[str] = set()
        for answer in self._pages(httpx.URL(f"/v2/{self._path}/tags/list", params={"n": PAGE}), "the list of tags"):
            if answer.status == 404:
                break
            page = manifest.decode(answer.body, _Tags, "the list of tags").tags or []
            if odd := next((tag for tag in page if not is_tag(tag)), None):
                raise Corrupt(f"{self.repository} lists {odd!r:.200}, which is no tag")
            found.update(page)
        return sorted(found)

    def resolve(self, tag: str) -> Descriptor:
        answer = self._document(self._manifests(tag), f"the manifest of {tag!r}")
        for pause in SETTLING_SECONDS:
            if answer.status != 404 or tag not in self.tags():
                break
            self._sleep(pause)
            answer = self._document(self._manifests(tag), f"the manifest of {tag!r}")
        if answer.status == 404:
            raise self._no_tag(tag)
        data, kind = answer.body, answer.headers.get("Content-Type", "").partition(";")[0].strip()
        digest, claimed = digests.of_bytes(data), answer.headers.get("Docker-Content-Digest")
        if claimed is not None and digests.is_digest(claimed) and claimed != digest:
            raise Corrupt(f"{self.repository} gives {digest} for the tag {tag!r} and says that it is {claimed}")
        found = manifest.decode(data, manifest.Kind, f"the manifest of {tag!r}")
        media_type = next((name for name in (found.media_type, kind) if _MEDIA_TYPE.fullmatch(name)), manifest.MANIFEST_TYPE)
        return Descriptor(media_type=media_type, digest=digest, size=len(data), artifact_type=found.artifact_type)

    def manifest(self, digest: str) -> bytes:
        digests.hex_of(digest)
        answer = self._document(self._manifests(digest), f"the manifest {digest}")
        if answer.status == 404:
            raise NotFound(f"{self.repository} has nothing with digest {digest}")
        return b"".join(digests.verified([answer.body], digest, len(answer.body), f"the manifest {digest}"))

    def has_blob(self, digest: str) -> bool:
        return (
            self._size(f"{self._target.path}/{digest}", digest) is not None
            or self._size(self._manifests(digest), digest) is not None
        )

    def blob(self, content: Descriptor) -> Iterator[bytes]:
        digests.hex_of(content.digest)
        call = Call("GET", f"{self._target.path}/{content.digest}", self._pull)
        return download.blob(self._client, call, content, self._progress)

    def push_blob(self, content: Descriptor, stream: BinaryIO) -> None:
        """See `Store`. A registry never mends what it holds: Corrupt where that has another size."""
        Upload(self._client, self._target, manifest.check(content), stream, self._progress).run()

    def push_manifest(self, data: bytes) -> Descriptor:
        described = manifest.describe(data)
        for pause in (*SETTLING_SECONDS, None):
            try:
                for digest in {content.digest for content in manifest.named(data)}:
                    if not self.has_blob(digest):
                        raise NotFound(f"{self.repository} has no blob {digest}, which the manifest names")
                self._put(described.digest, described.media_type, data)
                break
            except NotFound:
                if pause is None:
                    raise
                self._sleep(pause)
        return described

    def move_tags(self, to: Mapping[str, Descriptor], *, expect: Mapping[str, str | None]) -> None:
        """See `Store`. Raises Conflict as well where a tag that was just written names something else: a lost race."""
        for tag in to:
            if not is_tag(tag):
                raise BadReference(f"{tag!r} is no tag", "a tag is 1 to 128 letters, digits, '.', '_' and '-'")
        contents: dict[str, bytes] = {}
        for tag, target in to.items():
            try:
                contents[tag] = self.manifest(target.digest)
            except NotFound:
                raise NotFound(f"{self.repository} has no manifest {target.digest} for the tag {tag!r}") from None
        for tag in expect:
            self._check_expected(tag, expect)
        for tag, target in to.items():
            self._move(tag, target, contents[tag], expect)
            self._read_back(tag, target)
        for tag, target in list(to.items())[:-1]:
            self._read_back(tag, target)

    def delete(self, manifests: Iterable[str], *, expect: Mapping[str, str], grace_seconds: float) -> int | None:  # noqa: ARG002
        """See `Store`: the registry's garbage collection frees the content, in its own time.

        It deletes a manifest whatever names it, so the tags are looked at before each one.
        """
        for digest in manifests:
            digests.hex_of(digest)
            there = self.tags()
            with ThreadPoolExecutor(MOST_CONNECTIONS, thread_name_prefix="tags") as pool:
                found = dict(zip(there, pool.map(self._digest, there), strict=True))
            if moved := [tag for tag, names in found.items() if names not in (None, expect.get(tag))]:
                raise Conflict(f"the tag {moved[0]!r} was moved or made meanwhile", "look again and repeat")
            answer = self._client.ask(Call("DELETE", self._manifests(digest), (f"repository:{self._path}:pull,delete",)))
            if answer.status == 405:
                raise Refused(f"{self._client.host} deletes nothing{answer.said}", "its administrator can allow deletion")
            if answer.status not in (200, 202, 204, 404):
                raise answer.error(f"DELETE of {digest}")
        return None

    def referrers(self, digest: str) -> list[Descriptor] | None:
        digests.hex_of(digest)
        found: dict[str, Descriptor] = {}
        what = f"the list of what refers to {digest}"
        for answer in self._pages(httpx.URL(f"/v2/{self._path}/referrers/{digest}"), what):
            if answer.status == 404:
                return None
            index = manifest.decode(answer.body, _Index, what)
            found |= {entry.digest: manifest.check(entry) for entry in index.manifests}
        return list(found.values())

    def _move(self, tag: str, target: Descriptor, data: bytes, expect: Mapping[str, str | None]) -> None:
        """Move one tag. What its manifest names was there a moment ago: where it seems to be gone, others push the same."""
        for pause in (*SETTLING_SECONDS, None):
            try:
                self._put(tag, target.media_type, data)
                return
            except NotFound:
                if pause is None:
                    raise
                self._sleep(pause)
                self._check_expected(tag, expect)

    def _check_expected(self, tag: str, expect: Mapping[str, str | None]) -> None:
        """Raises Conflict where the tag is elsewhere."""
        if tag in expect and (found := self._digest(tag)) != expect[tag]:
            raise Conflict(f"the tag {tag!r} is at {found}, not at {expect[tag]}", "look again and repeat")

    def _read_back(self, tag: str, target: Descriptor) -> None:
        if (found := self._digest(tag)) != target.digest:
            message = f"the tag {tag!r} was moved to {target.digest} and is at {found}: somebody else moved it as well"
            raise Conflict(message, "look again and repeat; one writer at a time")

    def _digest(self, tag: str) -> str | None:
        """The manifest that a tag names, or None."""
        answer = self._client.ask(Call("HEAD", self._manifests(tag), self._pull, _ACCEPT))
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise answer.error(f"HEAD of the tag {tag!r}")
        claimed: str = answer.headers.get("Docker-Content-Digest", "")
        return claimed if digests.is_digest(claimed) else self.resolve(tag).digest

    def _put(self, name: str, media_type: str, data: bytes) -> None:
        call = Call("PUT", self._manifests(name), self._push, {"Content-Type": media_type}, lambda: [data], len(data))
        answer = self._client.ask(call)
        if answer.status == 404 or (answer.status == 400 and "BLOB_UNKNOWN" in answer.said):
            raise NotFound(f"{self.repository} lacks content that the manifest {name!r} names{answer.said}")
        if answer.status != 201:
            raise answer.error(f"PUT of the manifest {name!r}")

    def _holds(self, content: Descriptor) -> bool:
        """Whether a blob is stored. Raises Corrupt where it has another size."""
        size = self._size(f"{self._target.path}/{content.digest}", content.digest)
        if size is not None and size not in ("", str(content.size)):
            hint = "let the registry's administrator delete the damaged blob, then push again"
            raise Corrupt(f"{self.repository} holds {content.digest} with {size} bytes, not {content.size}", hint)
        return size is not None

    def _size(self, url: str, digest: str) -> str | None:
        """What the registry says about the size of some content, empty where nothing; None where it is not stored."""
        digests.hex_of(digest)
        answer = self._client.ask(Call("HEAD", url, self._pull, _ACCEPT))
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise answer.error(f"HEAD of {digest}")
        return str(answer.headers.get("Content-Length", ""))

    def _pages(self, url: httpx.URL, what: str) -> Iterator[Answer]:
        """The pages of a list, or the one answer 404. Every page is the registry's own."""
        for _ in range(MOST_PAGES):
            answer = self._document(url, what)
            yield answer
            if answer.status == 404 or (found := _NEXT.match(answer.headers.get("Link", ""))) is None:
                return
            url = answer.url.join(found[1])
            if not self._client.is_own(url):
                raise Corrupt(f"{self._client.host} has the next page of its list at {url.host}")
        raise Corrupt(f"{self.repository}: {what} has more than {MOST_PAGES} pages")

    def _document(self, url: str | httpx.URL, what: str) -> Answer:
        """An answer 200 with its whole body, or 404. Raises Corrupt, Refused, Unreachable."""
        answer = self._client.ask(Call("GET", url, self._pull, _ACCEPT), manifest.MAX_BYTES)
        if answer.status not in (200, 404):
            raise answer.error(f"GET of {what}")
        if len(answer.body) > manifest.MAX_BYTES:
            raise Corrupt(f"{self._client.host} sends more than {manifest.MAX_BYTES} bytes as {what}")
        return answer

    def _manifests(self, name: str) -> str:
        return f"/v2/{self._path}/manifests/{name}"

    def _no_tag(self, tag: str) -> NotFound:
        hint = f"model-registry list {self.repository} shows what is there"
        return NotFound(f"{self.repository} has no tag {tag!r}", hint)
