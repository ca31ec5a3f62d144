"""A store in an OCI registry over HTTP. Specification: OCI distribution-spec 1.1.

Registries have no compare-and-swap for tags. A tag is therefore written and then read back, so that the move of a concurrent
writer is detected in nearly all cases. The tags of one repository should have only one writer at a time.
"""

import io
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
from model_registry.stores.http_transport import MAX_CONNECTIONS
from model_registry.stores.retry import Timing
from model_registry.stores.upload import Upload, UploadTarget
from model_registry.untrusted_input import json_documents

PAGE = 1000  # requested number of tags per page
MAX_PAGES = 200
VISIBILITY_PAUSES = (0.1, 0.3, 0.9, 1.7)
"""Seconds between the checks whether a registry shows pushed content or a moved tag. Registries with replicas or caches show a
write late. So does docker-registry while other clients push the same content. Measured lags are about a second."""
LAST_PAUSE_SECONDS = 1.0  # further wait after moving tags, if the registry did not show a write immediately
NO_QUERY = frozenset({400, 405, 406, 416, 501})  # statuses of registries that do not know the parameters of a list
NO_REFERRERS = frozenset({400, 404, 405, 406, 410, 501})  # statuses of registries without the referrers API
# how long manifests that were read or pushed are kept in memory, and how many
RECENT_SECONDS = 10.0
MAX_RECENT = 64
_NONE: frozenset[int] = frozenset()
_NO_LIST = frozenset({404})  # the answer for a repository without tags
_TYPES = (manifest.MANIFEST_TYPE, manifest.INDEX_TYPE, manifest.DOCKER_MANIFEST_TYPE, manifest.DOCKER_INDEX_TYPE)
_ACCEPT = {"Accept": ", ".join(_TYPES)}
_MEDIA_TYPE = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9!#$&^_.+-]{0,126}/[a-zA-Z0-9][a-zA-Z0-9!#$&^_.+-]{0,126}")  # RFC 6838


class _TagList(msgspec.Struct):
    tags: list[str] | None = None


class _ReferrerList(msgspec.Struct):
    manifests: list[Descriptor] | None = None


class RemoteStore:
    """A store in an OCI registry; see `Store`. Any number of threads may share it."""

    def __init__(self, reference: ModelReference, options: StoreOptions = DEFAULTS, timing: Timing = Timing()) -> None:  # noqa: B008
        """Create the store without connecting. Raises Misconfigured."""
        host, _, path = reference.repository.partition("/")
        self._path = f"library/{path}" if host == "docker.io" and "/" not in path else path
        self.repository = reference.repository
        self._progress = options.progress
        self._client = OciClient(host, options, timing)
        self._timing = timing
        self._pull = (f"repository:{self._path}:pull",)
        self._push = (f"repository:{self._path}:pull,push",)
        mounts = tuple((name, f"repository:{name}:pull") for name in options.mount_from)
        self._target = UploadTarget(f"/v2/{self._path}/blobs", self._push[0], mounts, self._holds)
        self._validators: dict[str, str] = {}
        self._recent: dict[str, tuple[float, bytes]] = {}
        self._readable = self._listed = self._written = False  # whether this account has read, listed, written

    def validator(self, tag: str) -> str:
        """Return the tag's ETag, or its digest, from a HEAD request; see `Store`."""
        # A tag that moved and moved back between two calls has the same validator again.
        last_validator = self._validators.get(tag)
        condition = {"If-None-Match": last_validator} if last_validator else {}
        call = OciRequest("HEAD", self._manifests(tag), self._pull, _ACCEPT | condition)
        answer = self._client.request(call)
        if answer.status == 304 and last_validator:
            return last_validator
        if answer.status == 404 and self._client.is_own(answer.url):
            raise self._no_tag(tag)
        if answer.status != 200:
            return self.resolve(tag).digest
        validator: str = answer.headers.get("ETag") or answer.headers.get("Docker-Content-Digest", "")
        if not validator:
            return self.resolve(tag).digest
        self._validators[tag] = validator
        return validator

    def tags(self) -> list[str]:
        """Return all tags; see `Store`. The result is empty if the repository is empty or does not exist."""
        # Some registries limit the size of a page but send no Link header. The tags after the last received tag are therefore
        # requested until a page has no new tag.
        first, answer = self._first_tags()
        all_tags: set[str] = set()
        url = first
        others = _NONE
        linked = False
        for number in range(MAX_PAGES):
            if number:
                answer = self._tags_page(url, others)
            page = manifest.decode(answer.body, _TagList, "the list of tags").tags or [] if answer.status == 200 else []
            new_tags = set(page) - all_tags
            all_tags |= new_tags
            next_url = self._client.next_page(answer)
            if next_url is not None and (new_tags or linked or url == first):
                url = next_url
                others = _NONE
                linked = True
            elif new_tags and not linked:
                url = first.copy_set_param("last", page[-1])
                others = NO_QUERY | _NO_LIST
            else:
                return sorted(filter(is_tag, all_tags))  # some registries list digests too
        raise Corrupt(f"{self.repository}: the list of tags has more than {MAX_PAGES} pages")

    def _first_tags(self) -> tuple[httpx.URL, OciResponse]:
        """Return the URL and the response of the first page of tags. The response is a 404 if there is no list."""
        # If the registry rejects the parameter with the page size, the request is repeated without the parameter.
        first_page = httpx.URL(f"/v2/{self._path}/tags/list")
        url = first_page.copy_set_param("n", PAGE)
        answer = self._tags_page(url, NO_QUERY | _NO_LIST)
        return (first_page, self._tags_page(first_page, _NO_LIST)) if answer.status in NO_QUERY else (url, answer)

    def _tags_page(self, url: httpx.URL, others: frozenset[int]) -> OciResponse:
        """Request one page of the list of tags; return the response if its status is 200 or one of `others`.

        Raises:
            Corrupt, Refused, Unreachable: Any other status, or a page that is too large.
        """
        # A 403 after a write of this store may mean that a replica of the registry has no list yet. It is retried if this store
        # has read a list before, and returned as a 404 otherwise.
        description = "the list of tags"
        for _ in self.visibility_attempts():
            answer = self._client.request(OciRequest("GET", url, self._pull, _ACCEPT), manifest.MAX_BYTES)
            if answer.status != 403 or not (self._written and self._listed):
                break
        if answer.status == 403 and self._written and not self._listed:
            return replace(answer, status=404)
        if answer.status != 200 and answer.status not in others:
            raise answer.error(f"GET of {description}")
        self._listed = self._listed or answer.status == 200
        self._readable = self._readable or self._listed
        self._check_size(answer, description)
        return answer

    def resolve(self, tag: str) -> Descriptor:
        description = f"the manifest of {tag!r}"
        denied: Denied | None = None
        for _ in self.visibility_attempts():
            try:
                answer = self._document(self._manifests(tag), description, tag)
                denied = None
            except Denied as error:  # 403 may mean that the tag is in the list but its manifest is not available yet
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
        data = answer.body
        kind = answer.headers.get("Content-Type", "").partition(";")[0].strip()
        digest = digests.from_bytes(data)
        claimed = answer.headers.get("Docker-Content-Digest")
        if claimed is not None and digests.is_digest(claimed) and claimed != digest:
            raise Corrupt(
                f"{self.repository} gives {digest} for the tag {tag!r}, but its header Docker-Content-Digest names {claimed}"
            )
        document = manifest.decode(data, manifest.DocumentKind, description)
        self._remember(digest, data)
        media_type = next((name for name in (document.media_type, kind) if _MEDIA_TYPE.fullmatch(name)), manifest.MANIFEST_TYPE)
        return Descriptor(media_type=media_type, digest=digest, size=len(data), artifact_type=document.artifact_type)

    def manifest(self, digest: str) -> bytes:
        digests.hex_digits(digest)
        answer = self._manifest(digest)
        if answer.status == 404 and (data := self._recently(digest)) is not None:
            return data  # read or pushed a moment ago, and not shown everywhere yet
        if answer.status == 404:
            raise NotFound(f"{self.repository} has nothing with digest {digest}")
        return b"".join(digests.verify_chunks([answer.body], digest, len(answer.body), f"the manifest {digest}"))

    def _manifest(self, digest: str) -> OciResponse:
        """Request a manifest and return the response, a 200 or 404."""
        # Some registries answer 403 for a manifest that was just pushed. The request is therefore retried if this process read
        # or pushed the manifest recently.
        for _ in self.visibility_attempts():
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
        """Store a blob; see `Store`.

        Raises Corrupt also if the registry already holds the blob with another size, because a registry does not replace
        damaged content.
        """
        Upload(self._client, self._target, manifest.check(content), stream, self._progress).run()
        self._written = True

    def mount_blob(self, content: Descriptor) -> bool:
        upload = Upload(self._client, self._target, manifest.check(content), io.BytesIO(), self._progress)
        mounted = upload.mount()
        self._written = self._written or mounted
        return mounted

    def push_manifest(self, data: bytes) -> Descriptor:
        return self.push_referrer(data)[0]

    def push_referrer(self, data: bytes) -> tuple[Descriptor, bool]:
        """Store a manifest that refers to another one; see `Store`.

        The result is true if the registry answers with the header OCI-Subject, so that its referrers API lists the manifest.
        """
        described = manifest.describe_manifest(data)
        missing: RegistryError | None = None
        for _ in self.visibility_attempts():
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
        """Return the error for the first missing blob of a manifest; None if all blobs are stored."""
        # The error is Denied after a 403, because some registries answer 403 for a blob that was just pushed.
        try:
            for digest in {content.digest for content in manifest.contents(data)}:
                if not self.has_blob(digest):
                    return NotFound(f"{self.repository} has no blob {digest}, which the manifest names")
        except Denied as error:
            return error
        return None

    def visibility_attempts(self) -> Iterator[None]:
        yield
        for pause in VISIBILITY_PAUSES:
            self._timing.sleep(pause)
            yield

    def move_tags(self, to: Mapping[str, Descriptor], *, expect: Mapping[str, str | None]) -> None:
        """Move tags; see `Store`.

        Raises Conflict also if a tag names another manifest after it was written, because another writer then moved it too.
        """
        for tag in to:
            if not is_tag(tag):
                raise BadReference(f"{tag!r} is not a valid tag", "a tag is 1 to 128 letters, digits, '.', '_' and '-'")
        contents: dict[str, bytes] = {}
        for tag, target in to.items():
            try:
                contents[tag] = self.manifest(target.digest)
            except NotFound:
                raise NotFound(f"{self.repository} has no manifest {target.digest} for the tag {tag!r}") from None
        before = {tag: self._digest(tag) for tag in dict.fromkeys((*expect, *to))}
        for tag in expect:
            _check_expected(tag, before[tag], expect)
        shown_at_once = True
        for tag, target in to.items():
            self._move(tag, target, contents[tag], expect)
            shown_at_once &= self._read_back(tag, target, before[tag])
        for tag, target in list(to.items())[:-1]:
            shown_at_once &= self._read_back(tag, target, before[tag])
        if not shown_at_once:  # otherwise the next move may be planned from a replica's old state and overwrite this move
            self._timing.sleep(LAST_PAUSE_SECONDS)

    def delete(self, manifests: Iterable[str], *, expect: Mapping[str, str], grace_seconds: float) -> int | None:  # noqa: ARG002
        """Delete manifests; see `Store`. The registry's garbage collection frees the content later."""
        # A registry deletes a manifest even if a tag names it, so all tags are checked before each deletion.
        for digest in manifests:
            digests.hex_digits(digest)
            all_tags = self.tags()
            with ThreadPoolExecutor(MAX_CONNECTIONS, thread_name_prefix="tags") as pool:
                digest_of_tag = dict(zip(all_tags, pool.map(self._digest, all_tags), strict=True))
            if moved := [tag for tag, names in digest_of_tag.items() if names not in (None, expect.get(tag))]:
                raise Conflict(
                    f"the tag {moved[0]!r} was moved or created meanwhile", "read the tag again, and repeat the command"
                )
            self._recent.pop(digest, None)
            answer = self._client.request(
                OciRequest("DELETE", self._manifests(digest), (f"repository:{self._path}:pull,delete",))
            )
            if answer.status == 405:
                raise Refused(
                    f"{self._client.host} does not allow deletion{answer.reason}",
                    "ask the registry's administrator to allow deletion",
                )
            if answer.status not in (200, 202, 204, 404):
                raise answer.error(f"DELETE of {digest}")
        return None

    def referrers(self, digest: str) -> list[Descriptor] | None:
        """Return the listed referrers; see `Store`."""
        # Registries without the referrers API answer with an error, an HTML page or other JSON.
        digests.hex_digits(digest)
        entries: dict[str, Descriptor] = {}
        description = f"the list of referrers of {digest}"
        url = httpx.URL(f"/v2/{self._path}/referrers/{digest}")
        for page in range(MAX_PAGES):
            answer = self._client.request(OciRequest("GET", url, self._pull, _ACCEPT), manifest.MAX_BYTES)
            if page == 0 and self._has_no_list(answer, digest):
                return None
            if answer.status != 200:
                raise answer.error(f"GET of {description}")
            self._check_size(answer, description)
            index = manifest.decode(answer.body, _ReferrerList, description)
            entries |= {entry.digest: manifest.check(entry) for entry in index.manifests or []}
            if (next_url := self._client.next_page(answer)) is None:
                return list(entries.values())
            url = next_url
        raise Corrupt(f"{self.repository}: {description} has more than {MAX_PAGES} pages")

    def _has_no_list(self, answer: OciResponse, digest: str) -> bool:
        """Return whether a response of the referrers API means that there is no list of referrers."""
        # Some registries answer 403 for missing content. A 403 therefore also means this, if the account may read the
        # repository.
        if answer.status == 200:
            return not _is_list(answer.body, digest)
        return answer.status in NO_REFERRERS or (answer.status == 403 and self._is_readable(digest))

    def _is_readable(self, digest: str) -> bool:
        """Return whether the account may read the repository; if this is unknown, try to read the manifest `digest`."""
        if not self._readable:
            with suppress(RegistryError):
                self.manifest(digest)
        return self._readable

    def _move(self, tag: str, target: Descriptor, data: bytes, expect: Mapping[str, str | None]) -> None:
        """Write one tag by pushing its manifest `data` under the tag.

        A retry requires that the tag still names its digest in `expect`.

        Raises:
            Refused: The registry does not allow the tag to move.
            Conflict: Another writer moved the tag between two attempts.
        """
        # The content of the manifest was stored a moment ago. If the registry reports it as missing, another push of the same
        # content is in progress, and the write is retried. If the registry refuses the write but the tag names the target, an
        # earlier attempt succeeded and its response was lost.
        missing = NotFound("")
        for attempt, _ in enumerate(self.visibility_attempts()):
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
                hint = f"if the registry keeps tags from moving, exempt {tag!r} and '_h.*' from that rule"
                raise Refused(str(error), hint) from None
        raise missing

    def _read_back(self, tag: str, target: Descriptor, before: str | None) -> bool:
        """Wait until a written tag names its target; return whether the first check already showed the target.

        `before` is the digest that the tag named before the write.

        Raises:
            Conflict: The tag names neither its old digest nor its target.
            Unreachable: The tag still names its old digest after the last check.
        """
        for attempt, _ in enumerate(self.visibility_attempts()):
            if (shown := self._digest(tag)) == target.digest:
                return attempt == 0
            if shown not in (before, None):
                message = f"the tag {tag!r} was moved to {target.digest} and is at {shown}: another writer moved it too"
                raise Conflict(message, "read the tag again, and repeat the command; let only one process move a tag")
        message = (
            f"{self._client.host} accepted the move of the tag {tag!r} to {target.digest}, but shows {shown or 'no such tag'}"
        )
        raise Unreachable(
            f"{message} after {sum(VISIBILITY_PAUSES):g} s",
            f"it may show the move later: model-registry status {self.repository}; else another writer moved the tag back",
        )

    def _digest(self, tag: str) -> str | None:
        """Return the digest of the manifest that a tag names; None if there is no such tag."""
        answer = self._client.request(OciRequest("HEAD", self._manifests(tag), self._pull, _ACCEPT))
        if answer.status == 404 and self._client.is_own(answer.url):
            return None
        claimed: str = answer.headers.get("Docker-Content-Digest", "") if answer.status == 200 else ""
        if digests.is_digest(claimed):
            return claimed
        try:  # no HEAD, no header, or 403: GET returns the reason, and works if a storage URL is signed for GET only
            return self.resolve(tag).digest
        except NotFound:
            return None

    def _put(self, name: str, media_type: str, data: bytes) -> OciResponse:
        call = OciRequest("PUT", self._manifests(name), self._push, {"Content-Type": media_type}, lambda: [data], len(data))
        answer = self._client.request(call)
        if answer.status == 404 or (answer.status == 400 and "BLOB_UNKNOWN" in answer.reason):
            raise NotFound(f"{self.repository} lacks content that the manifest {name!r} names{answer.reason}")
        if answer.status not in (200, 201, 202):
            raise answer.error(f"PUT of the manifest {name!r}")
        return answer

    def _holds(self, content: Descriptor) -> bool:
        """Return whether a blob is stored. Raises Corrupt if the stored blob has another size."""
        size = self._size(f"{self._target.path}/{content.digest}", content.digest, unknown=403)
        if size == "0" and content.size:  # a proxy dropped the length, or the blob is damaged
            size = self._size_by_get(f"{self._target.path}/{content.digest}", content.digest)
        if size is not None and size not in ("", str(content.size)):
            hint = "ask the registry's administrator to delete the damaged blob, then push again"
            raise Corrupt(f"{self.repository} holds {content.digest} with {size} bytes, not {content.size} as declared", hint)
        return size is not None

    def _size(self, url: str, digest: str, unknown: int = 404) -> str | None:
        """Return the size of stored content as text: empty if the registry states no size, None if it is not stored.

        Args:
            url: The URL of the content.
            digest: The digest of the content.
            unknown: A second HTTP status, besides 404, that means "not stored".
        """
        # A caller that will push the content passes 403: the push then shows whether access is denied.
        digests.hex_digits(digest)
        answer = self._client.request(OciRequest("HEAD", url, self._pull, _ACCEPT))
        if answer.status != 200 and not self._client.is_own(answer.url):
            return self._size_by_get(url, digest)
        if answer.status == unknown or self._is_absent(answer, digest):
            return None
        if answer.status != 200:
            raise answer.error(f"HEAD of {digest}")
        return _stated_size(answer)

    def _size_by_get(self, url: str, digest: str) -> str | None:
        """Return the size as `_size` does, but send a GET request for one byte instead of a HEAD request."""
        # Some URLs are signed for GET only, and some proxies omit the length in responses to HEAD.
        with self._client.stream(OciRequest("GET", url, self._pull, _ACCEPT | {"Range": "bytes=0-0"})) as response:
            answer = read_response(response, 0)
        if answer.status == 404:
            return None
        if answer.status not in (200, 206, 416):
            raise answer.error(f"GET of {digest}")
        if answer.status == 200:
            return _stated_size(answer)
        return str(answer.headers.get("Content-Range", "")).rpartition("/")[2].replace("*", "")

    def _document(self, url: str | httpx.URL, description: str, name: str) -> OciResponse:
        """Request the document of a tag or digest (`name`) and return the response, a 200 or 404.

        Raises:
            Corrupt, Refused, Unreachable: Any other status, or a document that is too large.
        """
        # A 403 that means "does not exist" is returned as a 404, see `_is_absent`.
        answer = self._client.request(OciRequest("GET", url, self._pull, _ACCEPT), manifest.MAX_BYTES)
        if answer.status == 403 and self._is_absent(answer, name):
            return replace(answer, status=404)
        if answer.status == 404 and not self._client.is_own(answer.url):  # the redirect target cannot say what exists
            raise Unreachable(
                f"{answer.url.host} answered 404 to GET of {description}, which {self._client.host} redirected there"
            )
        if answer.status not in (200, 404):
            raise answer.error(f"GET of {description}")
        self._readable = self._readable or answer.status == 200
        self._check_size(answer, description)
        return answer

    def _check_size(self, answer: OciResponse, description: str) -> None:
        if len(answer.body) > manifest.MAX_BYTES:
            raise Corrupt(f"{self._client.host} sends more than {manifest.MAX_BYTES} bytes as {description}")

    def _is_absent(self, answer: OciResponse, name: str) -> bool:
        """Return whether a response means that a tag or digest does not exist."""
        # Some registries answer 403 for missing content, to hide which content exists. A 403 means this if the account can read
        # the repository and the list of tags lacks the name.
        if answer.status != 403:
            return answer.status == 404
        try:
            listed = name in self.tags()
        except RegistryError:
            listed = False
        return self._readable and not listed

    def _remember(self, digest: str, data: bytes) -> None:
        """Keep a manifest in memory for RECENT_SECONDS, because a replica of the registry may not show the manifest yet."""
        self._recent[digest] = (self._timing.clock() + RECENT_SECONDS, data)
        for old in list(self._recent)[:-MAX_RECENT]:
            self._recent.pop(old, None)

    def _recently(self, digest: str) -> bytes | None:
        until, data = self._recent.get(digest, (0.0, b""))
        return data if self._timing.clock() < until else None

    def _manifests(self, name: str) -> str:
        return f"/v2/{self._path}/manifests/{name}"

    def _no_tag(self, tag: str) -> NotFound:
        hint = f"model-registry list {self.repository} lists its content"
        return NotFound(f"{self.repository} has no tag {tag!r}", hint)


def _stated_size(answer: OciResponse) -> str:
    """Return the Content-Length of a response; an empty string if the header is missing or the body is encoded."""
    encoded = answer.headers.get("Content-Encoding", "identity") != "identity"
    return "" if encoded else str(answer.headers.get("Content-Length", ""))


def _check_expected(tag: str, actual: str | None, expect: Mapping[str, str | None]) -> None:
    """Raise Conflict if a tag does not name the expected digest. `actual` is the digest that the tag names."""
    if actual != expect[tag]:
        fault = f"the tag {tag!r} names {actual or 'no manifest'}, but {expect[tag] or 'no manifest'} was expected"
        raise Conflict(fault, "another client moved the tag: read the tag again, and repeat the command")


def _is_list(body: bytes, subject: str) -> bool:
    """Return whether a response body is a list of referrers, and not the subject's own manifest.

    The entries of the list are not checked.
    """
    if len(body) > manifest.MAX_BYTES:
        return True  # reported as an error elsewhere
    try:
        document = json_documents.ANY.decode(body)
    except json_documents.UnreadableDocument:
        return False
    if not isinstance(document, dict) or "manifests" not in document or digests.from_bytes(body) == subject:
        return False
    media_type = document.get("mediaType") or ""
    return media_type == manifest.INDEX_TYPE or (media_type == "" and isinstance(document["manifests"], list))
