"""A repository in an OCI registry, over HTTP. Specification: OCI distribution-spec 1.1.

Registries have no compare-and-swap: a tag is written, then read back, so that a lost race is seen in nearly all cases and
never silently overwrites a third writer's move. Tags of one repository should have one writer at a time.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import BinaryIO

import httpx
import msgspec

from model_registry.errors import BadReference, Conflict, Corrupt, Denied, NotFound, Refused, RegistryError, Unreachable
from model_registry.oci import digests, manifest
from model_registry.oci.manifest import Descriptor
from model_registry.oci.reference import ModelReference, is_tag
from model_registry.stores import download
from model_registry.stores.base import DEFAULTS, StoreOptions
from model_registry.stores.http_client import OciClient, OciRequest, OciResponse, read_response
from model_registry.stores.http_transport import MOST_CONNECTIONS
from model_registry.stores.retry import Timing
from model_registry.stores.upload import Upload, UploadTarget
from model_registry.untrusted_input import documents

PAGE = 1000  # tags asked for at a time
MOST_PAGES = 200
SETTLING_SECONDS = (0.1, 0.3, 0.9, 1.7)
"""How long content that was just pushed, or a tag that was just moved, may not be seen yet: docker-registry while others push
the same, and registries with replicas or caches. Measured lags are about a second."""
LATE_SECONDS = 1.0  # more that is waited where a write was not visible at once
NO_QUERY = frozenset({400, 405, 406, 416, 501})  # answers of registries that do not know the parameters of a list
NO_REFERRERS = frozenset({400, 404, 405, 406, 410, 501})  # how registries without the referrers API answer
RECENT_SECONDS, MOST_RECENT = 10.0, 64  # how long manifests that were seen are kept, and how many
_NONE: frozenset[int] = frozenset()
_NO_LIST = frozenset({404})  # of a repository without tags
_TYPES = (manifest.MANIFEST_TYPE, manifest.INDEX_TYPE, manifest.DOCKER_MANIFEST_TYPE, manifest.DOCKER_INDEX_TYPE)
_ACCEPT = {"Accept": ", ".join(_TYPES)}
_MEDIA_TYPE = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9!#$&^_.+-]{0,126}/[a-zA-Z0-9][a-zA-Z0-9!#$&^_.+-]{0,126}")  # RFC 6838


class _TagList(msgspec.Struct):
    tags: list[str] | None = None


class _ReferrerList(msgspec.Struct):
    manifests: list[Descriptor] | None = None


class RemoteStore:
    """See `Store`. Any number of threads may use one."""

    def __init__(self, reference: ModelReference, options: StoreOptions = DEFAULTS, timing: Timing = Timing()) -> None:  # noqa: B008
        """Touches nothing yet. Raises Misconfigured."""
        host, _, path = reference.repository.partition("/")
        self._path = f"library/{path}" if host == "docker.io" and "/" not in path else path
        self.repository, self._progress = reference.repository, options.progress
        self._client = OciClient(host, options, timing)
        self._timing = timing
        self._pull, self._push = (f"repository:{self._path}:pull",), (f"repository:{self._path}:pull,push",)
        mounts = tuple((name, f"repository:{name}:pull") for name in options.mount_from)
        self._target = UploadTarget(f"/v2/{self._path}/blobs", self._push[0], mounts, self._holds)
        self._validators: dict[str, str] = {}
        self._recent: dict[str, tuple[float, bytes]] = {}
        self._readable = self._listed = self._written = False  # whether the account has read, listed, written there

    def validator(self, tag: str) -> str:
        """See `Store`: one HEAD. A tag that went away and came back to the same manifest in between is not noticed."""
        known = self._validators.get(tag)
        condition = {"If-None-Match": known} if known else {}
        call = OciRequest("HEAD", self._manifests(tag), self._pull, _ACCEPT | condition)
        answer = self._client.ask(call)
        if answer.status == 304 and known:
            return known
        if answer.status == 404 and self._client.is_own(answer.url):
            raise self._no_tag(tag)
        if answer.status != 200:
            return self.resolve(tag).digest
        found: str = answer.headers.get("ETag") or answer.headers.get("Docker-Content-Digest", "")
        if not found:
            return self.resolve(tag).digest
        self._validators[tag] = found
        return found

    def tags(self) -> list[str]:
        """See `Store`. A registry does not tell an empty repository from one that does not exist: both have no tags.

        Some registries limit a page and send no Link, so that the tags behind the last one are asked for until none are new.
        """
        first, answer = self._first_tags()
        found: set[str] = set()
        url, others, linked = first, _NONE, False
        for number in range(MOST_PAGES):
            if number:
                answer = self._tags_page(url, others)
            page = manifest.decode(answer.body, _TagList, "the list of tags").tags or [] if answer.status == 200 else []
            fresh = set(page) - found
            found |= fresh
            following = self._client.next_page(answer)
            if following is not None and (fresh or linked or url == first):
                url, others, linked = following, _NONE, True
            elif fresh and not linked:
                url, others = first.copy_set_param("last", page[-1]), NO_QUERY | _NO_LIST
            else:
                return sorted(filter(is_tag, found))  # some registries list digests; no reference names what is no tag
        raise Corrupt(f"{self.repository}: the list of tags has more than {MOST_PAGES} pages")

    def _first_tags(self) -> tuple[httpx.URL, OciResponse]:
        """Return the first page of the list of tags, or an answer 404, and the URL that was asked for.

        A registry that rejects the size of a page is asked without one.
        """
        plain = httpx.URL(f"/v2/{self._path}/tags/list")
        url = plain.copy_set_param("n", PAGE)
        answer = self._tags_page(url, NO_QUERY | _NO_LIST)
        return (plain, self._tags_page(plain, _NO_LIST)) if answer.status in NO_QUERY else (url, answer)

    def _tags_page(self, url: httpx.URL, others: frozenset[int]) -> OciResponse:
        """Return an answer 200 or of one of the `others`. Raises Corrupt, Refused, Unreachable.

        Where the account has just written, 403 may mean that there is no list yet, or on every replica: it is waited for.
        """
        what = "the list of tags"
        for _ in self.settle():
            answer = self._client.ask(OciRequest("GET", url, self._pull, _ACCEPT), manifest.MAX_BYTES)
            if answer.status != 403 or not (self._written and self._listed):
                break
        if answer.status == 403 and self._written and not self._listed:
            return replace(answer, status=404)
        if answer.status != 200 and answer.status not in others:
            raise answer.error(f"GET of {what}")
        self._listed = self._listed or answer.status == 200
        self._readable = self._readable or self._listed
        self._check_size(answer, what)
        return answer

    def resolve(self, tag: str) -> Descriptor:
        what = f"the manifest of {tag!r}"
        denied: Denied | None = None
        for _ in self.settle():
            try:
                answer, denied = self._document(self._manifests(tag), what, tag), None
            except Denied as error:  # the tag may be listed before it is shown, and 403 may mean that it is not shown
                denied = error
                if not self._readable:
                    break
                continue
            if answer.status != 404 or tag not in self.tags():
                break
        if denied is not None:
            raise denied
        if answer.status == 404:
            raise self._no_tag(tag)
        data, kind = answer.body, answer.headers.get("Content-Type", "").partition(";")[0].strip()
        digest, claimed = digests.from_bytes(data), answer.headers.get("Docker-Content-Digest")
        if claimed is not None and digests.is_digest(claimed) and claimed != digest:
            raise Corrupt(f"{self.repository} gives {digest} for the tag {tag!r} and says that it is {claimed}")
        found = manifest.decode(data, manifest.DocumentKind, what)
        self._remember(digest, data)
        media_type = next((name for name in (found.media_type, kind) if _MEDIA_TYPE.fullmatch(name)), manifest.MANIFEST_TYPE)
        return Descriptor(media_type=media_type, digest=digest, size=len(data), artifact_type=found.artifact_type)

    def manifest(self, digest: str) -> bytes:
        digests.hex_digits(digest)
        answer = self._manifest(digest)
        if answer.status == 404 and (data := self._recently(digest)) is not None:
            return data  # its tag was read, or it was pushed, a moment ago: not shown everywhere yet
        if answer.status == 404:
            raise NotFound(f"{self.repository} has nothing with digest {digest}")
        return b"".join(digests.verify_chunks([answer.body], digest, len(answer.body), f"the manifest {digest}"))

    def _manifest(self, digest: str) -> OciResponse:
        """Return an answer 200 or 404. What was just pushed may be forbidden until it is shown: that is waited for."""
        for _ in self.settle():
            try:
                return self._document(self._manifests(digest), f"the manifest {digest}", digest)
            except Denied as error:
                denied = error
                if self._recently(digest) is None:
                    break
        raise denied

    def has_blob(self, digest: str) -> bool:
        return (
            self._size(f"{self._target.path}/{digest}", digest) is not None
            or self._size(self._manifests(digest), digest) is not None
        )

    def blob(self, content: Descriptor) -> Iterator[bytes]:
        digests.hex_digits(content.digest)
        call = OciRequest("GET", f"{self._target.path}/{content.digest}", self._pull)
        return download.blob(self._client, call, content, self._progress)

    def push_blob(self, content: Descriptor, stream: BinaryIO) -> None:
        """See `Store`. A registry never mends what it holds: Corrupt where that has another size."""
        Upload(self._client, self._target, manifest.check(content), stream, self._progress).run()
        self._written = True

    def push_manifest(self, data: bytes) -> Descriptor:
        return self.push_referrer(data)[0]

    def push_referrer(self, data: bytes) -> tuple[Descriptor, bool]:
        """See `Store`: the registry confirms with the header OCI-Subject that it lists the manifest (specification 1.1)."""
        described = manifest.describe_manifest(data)
        missing: RegistryError | None = None
        for _ in self.settle():
            missing = self._missing(data)
            if missing is not None:
                continue
            try:
                answer = self._put(described.digest, described.media_type, data)
            except NotFound as error:
                missing = error
                continue
            self._remember(described.digest, data)
            return described, "OCI-Subject" in answer.headers
        assert missing is not None
        raise missing

    def _missing(self, data: bytes) -> NotFound | Denied | None:
        """Return the error that the first absent blob of a manifest means, None where all are stored.

        Some registries answer 403 for a blob that they do not show yet.
        """
        try:
            for digest in {content.digest for content in manifest.contents(data)}:
                if not self.has_blob(digest):
                    return NotFound(f"{self.repository} has no blob {digest}, which the manifest names")
        except Denied as error:
            return error
        return None

    def settle(self) -> Iterator[None]:
        yield
        for pause in SETTLING_SECONDS:
            self._timing.sleep(pause)
            yield

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
        before = {tag: self._digest(tag) for tag in dict.fromkeys((*expect, *to))}
        for tag in expect:
            _check_expected(tag, before[tag], expect)
        at_once = True
        for tag, target in to.items():
            self._move(tag, target, contents[tag], expect)
            at_once &= self._read_back(tag, target, before[tag])
        for tag, target in list(to.items())[:-1]:
            at_once &= self._read_back(tag, target, before[tag])
        if not at_once:  # other replicas may show it later still: who plans the next move by an old state overwrites this one
            self._timing.sleep(LATE_SECONDS)

    def delete(self, manifests: Iterable[str], *, expect: Mapping[str, str], grace_seconds: float) -> int | None:  # noqa: ARG002
        """See `Store`: the registry's garbage collection frees the content, in its own time.

        It deletes a manifest whatever names it, so the tags are looked at before each one.
        """
        for digest in manifests:
            digests.hex_digits(digest)
            there = self.tags()
            with ThreadPoolExecutor(MOST_CONNECTIONS, thread_name_prefix="tags") as pool:
                found = dict(zip(there, pool.map(self._digest, there), strict=True))
            if moved := [tag for tag, names in found.items() if names not in (None, expect.get(tag))]:
                raise Conflict(f"the tag {moved[0]!r} was moved or made meanwhile", "look again and repeat")
            self._recent.pop(digest, None)
            answer = self._client.ask(OciRequest("DELETE", self._manifests(digest), (f"repository:{self._path}:pull,delete",)))
            if answer.status == 405:
                raise Refused(f"{self._client.host} deletes nothing{answer.said}", "its administrator can allow deletion")
            if answer.status not in (200, 202, 204, 404):
                raise answer.error(f"DELETE of {digest}")
        return None

    def referrers(self, digest: str) -> list[Descriptor] | None:
        """See `Store`. Registries without the API answer an error, a page, any JSON, or the manifest itself."""
        digests.hex_digits(digest)
        found: dict[str, Descriptor] = {}
        what = f"the list of what refers to {digest}"
        url = httpx.URL(f"/v2/{self._path}/referrers/{digest}")
        for page in range(MOST_PAGES):
            answer = self._client.ask(OciRequest("GET", url, self._pull, _ACCEPT), manifest.MAX_BYTES)
            if page == 0 and self._has_no_list(answer, digest):
                return None
            if answer.status != 200:
                raise answer.error(f"GET of {what}")
            self._check_size(answer, what)
            index = manifest.decode(answer.body, _ReferrerList, what)
            found |= {entry.digest: manifest.check(entry) for entry in index.manifests or []}
            if (following := self._client.next_page(answer)) is None:
                return list(found.values())
            url = following
        raise Corrupt(f"{self.repository}: {what} has more than {MOST_PAGES} pages")

    def _has_no_list(self, answer: OciResponse, digest: str) -> bool:
        """Whether an answer means that the registry has no list of referrers. Some answer 403 for whatever does not exist."""
        if answer.status == 200:
            return not _is_list(answer.body, digest)
        return answer.status in NO_REFERRERS or (answer.status == 403 and self._is_readable(digest))

    def _is_readable(self, digest: str) -> bool:
        """Whether the account may read the repository, which holds a manifest with this digest."""
        if not self._readable:
            with suppress(RegistryError):
                self.manifest(digest)
        return self._readable

    def _move(self, tag: str, target: Descriptor, data: bytes, expect: Mapping[str, str | None]) -> None:
        """Move one tag. What its manifest names was there a moment ago: where it seems to be gone, others push the same.

        Raises Refused where the registry does not let the tag move. A tag that is where it should be was moved, whatever the
        answer: the one to an earlier attempt may have been lost.
        """
        missing = NotFound("")
        for attempt, _ in enumerate(self.settle()):
            if attempt and tag in expect:
                _check_expected(tag, self._digest(tag), expect)
            try:
                self._put(tag, target.media_type, data)
                return
            except NotFound as error:
                missing = error
            except Refused as error:
                if self._digest(tag) == target.digest:
                    return
                hint = f"if the registry keeps tags from moving, except {tag!r} and '_h.*' from that rule"
                raise Refused(str(error), hint) from None
        raise missing

    def _read_back(self, tag: str, target: Descriptor, before: str | None) -> bool:
        """Wait until a tag that was written names its target; whether it did at once.

        Raises Conflict where it names something else than before and than the target, Unreachable where it stays as before.
        """
        for looks, _ in enumerate(self.settle()):
            if (found := self._digest(tag)) == target.digest:
                return looks == 0
            if found not in (before, None):
                message = f"the tag {tag!r} was moved to {target.digest} and is at {found}: somebody else moved it as well"
                raise Conflict(message, "look again and repeat; one writer at a time")
        message = f"{self._client.host} took the move of the tag {tag!r} to {target.digest}, and shows {found or 'no such tag'}"
        raise Unreachable(
            f"{message} after {sum(SETTLING_SECONDS):g} s",
            f"it may show the move later: model-registry status {self.repository}; else another writer moved the tag back",
        )

    def _digest(self, tag: str) -> str | None:
        """The manifest that a tag names, or None."""
        answer = self._client.ask(OciRequest("HEAD", self._manifests(tag), self._pull, _ACCEPT))
        if answer.status == 404 and self._client.is_own(answer.url):
            return None
        claimed: str = answer.headers.get("Docker-Content-Digest", "") if answer.status == 200 else ""
        if digests.is_digest(claimed):
            return claimed
        try:  # no HEAD, no header, or 403: GET says more, and is signed where a storage's address was signed for GET only
            return self.resolve(tag).digest
        except NotFound:
            return None

    def _put(self, name: str, media_type: str, data: bytes) -> OciResponse:
        call = OciRequest("PUT", self._manifests(name), self._push, {"Content-Type": media_type}, lambda: [data], len(data))
        answer = self._client.ask(call)
        if answer.status == 404 or (answer.status == 400 and "BLOB_UNKNOWN" in answer.said):
            raise NotFound(f"{self.repository} lacks content that the manifest {name!r} names{answer.said}")
        if answer.status not in (200, 201, 202):
            raise answer.error(f"PUT of the manifest {name!r}")
        return answer

    def _holds(self, content: Descriptor) -> bool:
        """Whether a blob is stored. Raises Corrupt where it has another size."""
        size = self._size(f"{self._target.path}/{content.digest}", content.digest, unknown=403)
        if size == "0" and content.size:  # HEAD lost its length in a proxy, or the blob is damaged
            size = self._size_by_get(f"{self._target.path}/{content.digest}", content.digest)
        if size is not None and size not in ("", str(content.size)):
            hint = "let the registry's administrator delete the damaged blob, then push again"
            raise Corrupt(f"{self.repository} holds {content.digest} with {size} bytes, not {content.size}", hint)
        return size is not None

    def _size(self, url: str, digest: str, unknown: int = 404) -> str | None:
        """What the registry says about the size of some content, empty where nothing; None where it is not stored.

        `unknown` is another status that means so: of what is pushed next, the push says whether it is forbidden.
        """
        digests.hex_digits(digest)
        answer = self._client.ask(OciRequest("HEAD", url, self._pull, _ACCEPT))
        if answer.status != 200 and not self._client.is_own(answer.url):
            return self._size_by_get(url, digest)
        if answer.status == unknown or self._is_absent(answer, digest):
            return None
        if answer.status != 200:
            raise answer.error(f"HEAD of {digest}")
        return _stated_size(answer)

    def _size_by_get(self, url: str, digest: str) -> str | None:
        """As `_size`, where HEAD does not do: a storage whose address is signed for GET only, or a proxy without lengths."""
        with self._client.stream(OciRequest("GET", url, self._pull, _ACCEPT | {"Range": "bytes=0-0"})) as response:
            answer = read_response(response, 0)
        if answer.status == 404:
            return None
        if answer.status not in (200, 206, 416):
            raise answer.error(f"GET of {digest}")
        if answer.status == 200:
            return _stated_size(answer)
        return str(answer.headers.get("Content-Range", "")).rpartition("/")[2].replace("*", "")

    def _document(self, url: str | httpx.URL, what: str, name: str) -> OciResponse:
        """An answer 200 with its whole body, or 404, for the tag or digest `name`. Raises Corrupt, Refused, Unreachable."""
        answer = self._client.ask(OciRequest("GET", url, self._pull, _ACCEPT), manifest.MAX_BYTES)
        if answer.status == 403 and self._is_absent(answer, name):
            return replace(answer, status=404)
        if answer.status == 404 and not self._client.is_own(answer.url):  # where it was redirected: no word on what exists
            raise Unreachable(f"{answer.url.host} answered 404 to GET of {what}, which {self._client.host} redirected there")
        if answer.status not in (200, 404):
            raise answer.error(f"GET of {what}")
        self._readable = self._readable or answer.status == 200
        self._check_size(answer, what)
        return answer

    def _check_size(self, answer: OciResponse, what: str) -> None:
        if len(answer.body) > manifest.MAX_BYTES:
            raise Corrupt(f"{self._client.host} sends more than {manifest.MAX_BYTES} bytes as {what}")

    def _is_absent(self, answer: OciResponse, name: str) -> bool:
        """Whether an answer means that there is no such tag or digest: 404, and 403 where the repository can be read.

        Some registries answer 403 for whatever does not exist, so that nobody learns what does.
        """
        if answer.status != 403:
            return answer.status == 404
        try:
            listed = name in self.tags()
        except RegistryError:
            listed = False
        return self._readable and not listed

    def _remember(self, digest: str, data: bytes) -> None:
        """Keep a manifest that the registry holds, for a while: a replica of it may not show it yet."""
        self._recent[digest] = (self._timing.clock() + RECENT_SECONDS, data)
        for old in list(self._recent)[:-MOST_RECENT]:
            self._recent.pop(old, None)

    def _recently(self, digest: str) -> bytes | None:
        until, data = self._recent.get(digest, (0.0, b""))
        return data if self._timing.clock() < until else None

    def _manifests(self, name: str) -> str:
        return f"/v2/{self._path}/manifests/{name}"

    def _no_tag(self, tag: str) -> NotFound:
        hint = f"model-registry list {self.repository} shows what is there"
        return NotFound(f"{self.repository} has no tag {tag!r}", hint)


def _stated_size(answer: OciResponse) -> str:
    """Return the size of some content as an answer 200 states it, empty where the body is encoded or no size is stated."""
    encoded = answer.headers.get("Content-Encoding", "identity") != "identity"
    return "" if encoded else str(answer.headers.get("Content-Length", ""))


def _check_expected(tag: str, found: str | None, expect: Mapping[str, str | None]) -> None:
    """Raises Conflict where the tag is elsewhere."""
    if found != expect[tag]:
        raise Conflict(f"the tag {tag!r} is at {found}, not at {expect[tag]}", "look again and repeat")


def _is_list(body: bytes, subject: str) -> bool:
    """Whether an answer is a list of referrers by its form, and not the subject itself. Its entries are not looked at."""
    if len(body) > manifest.MAX_BYTES:
        return True  # cut off: an error of its own
    try:
        document = documents.ANY.decode(body)
    except documents.UnreadableDocument:
        return False
    if not isinstance(document, dict) or "manifests" not in document or digests.from_bytes(body) == subject:
        return False
    media_type = document.get("mediaType") or ""
    return media_type == manifest.INDEX_TYPE or (media_type == "" and isinstance(document["manifests"], list))
