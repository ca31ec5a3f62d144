"""Uploads one blob to a registry: mounts it from another repository, sends it in one request, or sends it in resumable chunks.

If the registry rejects a request for its size or form, the next method is used. Specification: OCI distribution-spec 1.1,
"Pushing blobs" and "Mounting a blob from another repository".
"""

# Registries and their proxies limit the size of one request. They reject a larger request with 413, or with 416 if the request
# has a Content-Range (the largest public registry does so above 4 MiB). The blob is not visible in the registry before the last
# request, which names its digest.

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

import httpx

from model_registry.errors import Corrupt, RegistryError, Unreachable
from model_registry.oci import digests
from model_registry.oci.manifest import Descriptor
from model_registry.stores.base import Progress
from model_registry.stores.http_client import AttemptFailed, Body, OciClient, OciRequest, OciResponse
from model_registry.stores.retry import PROGRESS_BYTES

WHOLE_BYTES = 4 << 20  # a blob up to this size is sent in one request from memory
CHUNKS = (4 << 20, 1 << 20, 256 << 10)  # bytes of one request, tried in turn if larger requests are rejected
ONE_PUT = 0
STUCK = 2  # number of requests that fail while they are sent before a smaller chunk size is used
TOO_LARGE = frozenset({413, 416})
NO_PATCH = frozenset({400, 405, 411, 501})  # statuses of registries that do not support PATCH or Content-Range
_RANGE = re.compile(r"(?:bytes=)?0-(\d+)")
_OCTETS = {"Content-Type": "application/octet-stream"}


def upload_methods(size: int, least: int = 0) -> list[int]:
    """Return the methods to send a blob, the preferred method first.

    A method is the chunk size of PATCH requests in bytes, or ONE_PUT for a single PUT request with the whole blob.

    Args:
        size: The size of the blob in bytes.
        least: The smallest chunk that the registry accepts (`OCI-Chunk-Min-Length`), in bytes.
    """
    smaller = [chunk for chunk in CHUNKS if least <= chunk < size]
    return [ONE_PUT, *smaller] if size <= WHOLE_BYTES else [size, *smaller, ONE_PUT]


@dataclass(frozen=True, slots=True)
class UploadTarget:
    """The repository to which blobs are uploaded.

    Attributes:
        path: The URL path of the repository's blobs: `/v2/<repository>/blobs`.
        scope: The token scope that allows a push.
        mounts: Repositories from which a blob may be mounted, each with the token scope that allows reading it.
        stored: Returns whether the repository already holds a blob.
    """

    path: str
    scope: str
    mounts: tuple[tuple[str, str], ...]  # (repository, scope to read it)
    stored: Callable[[Descriptor], bool]


class _HashedSource:
    """The bytes of the blob to send, hashed when they are first read. Reading them again needs a seekable stream."""

    def __init__(self, stream: BinaryIO, content: Descriptor, host: str) -> None:
        self._stream = stream
        self._content = content
        self._host = host
        self._description = f"the content to be stored as {content.digest}"
        self._start = stream.tell() if stream.seekable() else None
        self._at = self._hashed = 0
        self._sha = hashlib.sha256()

    def check(self) -> None:
        """Read and hash all bytes not read yet. Raises Corrupt if the bytes do not have the declared size and digest."""
        for _ in self.read(self._hashed, self._content.size):
            pass

    def read(self, begin: int, end: int) -> Iterator[bytes]:
        """Yield the bytes from `begin` to `end`.

        Raises Corrupt if the stream is too short, or if size or digest differ at the end of the content.
        """
        self._seek(min(begin, self._hashed))
        while self._at < end:
            chunk = self._stream.read(min(digests.CHUNK, end - self._at))
            if not chunk:
                raise Corrupt(f"{self._description} is {self._at} bytes long, not {self._content.size} as declared", self._hint)
            self._hash(chunk)
            self._at += len(chunk)
            if self._at > begin:
                yield chunk[max(0, begin - (self._at - len(chunk))) :]
        if end == self._content.size:
            self._finish()

    def _hash(self, chunk: bytes) -> None:
        fresh = self._at + len(chunk) - self._hashed
        if fresh > 0:
            self._sha.update(chunk[len(chunk) - fresh :])
            self._hashed += fresh

    def _finish(self) -> None:
        content = self._content
        if self._stream.read(1):
            raise Corrupt(f"{self._description} is longer than the {content.size} bytes that were declared", self._hint)
        if self._sha.hexdigest() != digests.hex_digits(content.digest):
            raise Corrupt(f"{self._description} has digest sha256:{self._sha.hexdigest()}, not {content.digest}", self._hint)

    def _seek(self, offset: int) -> None:
        if self._at == offset:
            return
        if self._start is None:
            fault = f"{self._host}: the connection broke during the upload, and the content cannot be read twice"
            raise Unreachable(fault, "repeat the command")
        self._stream.seek(self._start + offset)
        self._at = offset

    @property
    def _hint(self) -> str:
        return "the content changed while it was pushed; push it again"


class _NextMethod(Exception):
    """The registry rejected the size or form of a request. Another method from `upload_methods` may work."""


class Upload:
    """The upload of one blob, from the current position of `stream`. Repeated requests need a seekable stream."""

    def __init__(
        self, client: OciClient, target: UploadTarget, content: Descriptor, stream: BinaryIO, progress: Progress | None
    ) -> None:
        self._client = client
        self._target = target
        self._content = content
        self._progress = progress
        self._scopes = (target.scope,)
        self._source = _HashedSource(stream, content, client.host)
        self._methods = upload_methods(content.size)
        self._url: httpx.URL | None = None
        self._offset = self._sent = self._stuck = 0

    def run(self) -> None:
        """Store the blob, with retries. A blob that is already stored is only compared with the stream.

        Raises:
            Corrupt: The stream does not have the declared content; nothing is stored.
            Unreachable: The registry does not answer, or a retry is needed and the stream is not seekable.
        """
        attempts = self._client.new_attempt_limit()
        if self._target.stored(self._content):
            self._source.check()
            return
        while True:
            before = self._offset
            self._sent = 0
            try:
                self._step()
                return
            except _NextMethod:
                self._cancel()
                self._url = None
                attempts.progressed(self._client.timing.clock())
            except AttemptFailed as failure:
                if self._offset - before >= PROGRESS_BYTES:
                    attempts.progressed(self._client.timing.clock())
                    self._stuck = 0
                elif self._sent >= PROGRESS_BYTES:
                    attempts.transferred(self._client.timing.clock())
                    self._shrink()
                self._client.wait(attempts, failure)
                if self._target.stored(self._content):
                    return  # the response to the last request was lost, not the request
            except RegistryError as error:
                if not isinstance(error, Unreachable):
                    self._cancel()
                raise

    def mount(self) -> bool:
        """Mount the blob from another repository, without reading the stream. Return False if that is not possible."""
        for repository, scope in self._target.mounts:
            with contextlib.suppress(AttemptFailed, RegistryError):
                answer = self._open({"mount": self._content.digest, "from": repository}, scope)
                if answer.status == 201:
                    return True
                if answer.status == 202:
                    self._url = self._client.allowed(answer.location())
                    self._cancel()
                    self._url = None
        return False

    def _shrink(self) -> None:
        """Count a request that failed during sending; after STUCK of them, use the next smaller chunk size."""
        # A proxy that limits the size of requests may close the connection before the client reads the 413 response.
        self._stuck += 1
        smaller = (
            self._methods[1:] if self._methods[0] == ONE_PUT else [method for method in self._methods[1:] if method != ONE_PUT]
        )
        if self._stuck >= STUCK and smaller:
            self._stuck = 0
            self._methods = self._methods[1:]

    def _step(self) -> None:
        """Make one attempt to finish the upload: resume at the offset that the registry has, or start from the beginning.

        Raises AttemptFailed, _NextMethod.
        """
        if self._url is not None and self._methods[0] != ONE_PUT:
            self._find_offset()
        if (self._url is None or self._methods[0] == ONE_PUT) and not self._begin():
            return
        if self._methods[0] == ONE_PUT:
            self._put()
            return
        first = True
        while self._offset < self._content.size:
            self._patch(min(self._offset + self._methods[0], self._content.size), first)
            first = False
        self._finish(list, 0)

    def _begin(self) -> bool:
        """Mount the blob from another repository, or open an upload. Return False if the blob was mounted."""
        self._offset = 0
        self._url = None
        for repository, scope in self._target.mounts:
            try:
                answer = self._open({"mount": self._content.digest, "from": repository}, scope)
            except RegistryError:  # for example no token for both repositories: send the content
                continue
            if answer.status == 201:
                self._source.check()
                return False
            if answer.status == 202:  # not in that repository: the registry has opened an upload instead
                self._cancel()
                self._url = self._client.allowed(answer.location())
        if self._url is None:
            answer = self._open({})
            if answer.status != 202:
                raise answer.error("POST of an upload")
            self._url = self._client.allowed(answer.location())
        self._drop_small_chunks(answer)
        return True

    def _open(self, query: dict[str, str], *scopes: str) -> OciResponse:
        url = httpx.URL(f"{self._target.path}/uploads/", params=query)
        return self._client.request_once(OciRequest("POST", url, (self._target.scope, *scopes)))

    def _drop_small_chunks(self, answer: OciResponse) -> None:
        """Remove the chunk sizes below the registry's minimum from the remaining methods."""
        minimum = answer.headers.get("OCI-Chunk-Min-Length", "")
        if minimum.isascii() and minimum.isdigit() and len(minimum) < 16:
            accepted = upload_methods(self._content.size, int(minimum))
            self._methods = [method for method in self._methods if method in accepted]

    def _find_offset(self) -> None:
        """Ask the registry how many bytes of the upload it has stored. Forget the upload if it is lost or has no bytes."""
        assert self._url is not None
        answer = self._client.request_once(OciRequest("GET", self._url, self._scopes))
        stored_range = _RANGE.fullmatch(answer.headers.get("Range", ""))
        end = int(stored_range[1]) if stored_range and answer.status == 204 else 0
        if not 0 < end < self._content.size:  # "0-0" means one byte or none
            self._url = None
            return
        self._offset = end + 1
        self._follow(answer)

    def _patch(self, end: int, first: bool) -> None:
        """Send the bytes from the offset up to `end` in one PATCH request.

        `first` is true for the first PATCH request of an attempt.
        """
        # The status 416 means that the registry rejects the size or form of the first request, or, for a later one, that the
        # registry lost the offset.
        assert self._url is not None
        begin = self._offset
        total = self._content.size
        headers = _OCTETS | {"Content-Range": f"{begin}-{end - 1}"}
        answer = self._client.request_once(
            OciRequest("PATCH", self._url, self._scopes, headers, lambda: self._pieces(begin, end), end - begin)
        )
        if answer.status == 404 or (answer.status == 416 and not first):
            raise AttemptFailed(f"the registry lost the offset of the upload{answer.reason}")
        if answer.status in NO_PATCH and ONE_PUT in self._methods:
            self._methods = self._methods[self._methods.index(ONE_PUT) :]
            raise _NextMethod
        self._try_next_method(answer)
        if not 200 <= answer.status < 300:
            raise answer.error(f"PATCH of {end - begin} bytes of a blob of {total}")
        self._follow(answer)
        stored = _RANGE.fullmatch(answer.headers.get("Range", ""))
        # A registry may store fewer bytes than were sent. A Range up to before `begin` is ignored: some state only the chunk.
        self._offset = int(stored[1]) + 1 if stored and begin < int(stored[1]) + 1 < end else end

    def _put(self) -> None:
        """Send the whole blob in the PUT request that completes the upload. Raises AttemptFailed, _NextMethod, Corrupt."""
        size = self._content.size
        if size <= WHOLE_BYTES:
            data = b"".join(self._source.read(0, size))
            self._finish(lambda: self._whole(data), size)
            if self._progress:
                self._progress(self._content, size)
            return
        self._source.check()  # a registry must not get the last byte of other content
        self._finish(lambda: self._pieces(0, size), size)

    def _finish(self, body: Body, size: int) -> None:
        """Send the PUT request that completes the upload, with a body of `size` bytes. Raises AttemptFailed, _NextMethod."""
        assert self._url is not None
        digest = httpx.QueryParams({"digest": self._content.digest})
        query = b"&".join(filter(None, (self._url.query, str(digest).encode())))  # the rest as the registry wrote it
        answer = self._client.request_once(
            OciRequest("PUT", self._url.copy_with(query=query), self._scopes, _OCTETS, body if size else None, size)
        )
        if answer.status == 404:
            raise AttemptFailed(f"the registry lost the upload{answer.reason}")
        if size:
            self._try_next_method(answer)
        if 200 <= answer.status < 300:
            return
        if answer.status not in (401, 403) and self._target.stored(self._content):
            return  # another push has stored the same content at the same time, which some registries answer with an error
        if answer.status == 400 and self._methods[0] != ONE_PUT and ONE_PUT in self._methods:
            self._methods = self._methods[self._methods.index(ONE_PUT) :]  # the stored parts differ from the content
            raise _NextMethod
        raise answer.error(f"PUT of {self._content.digest}, {size} bytes")

    def _try_next_method(self, answer: OciResponse) -> None:
        """Switch to the next method and raise _NextMethod, if the request was too large and there is another method."""
        if answer.status in TOO_LARGE and len(self._methods) > 1:
            self._methods = self._methods[1:]
            raise _NextMethod

    def _follow(self, answer: OciResponse) -> None:
        """Use the Location header of a response as the URL of the next request, if there is one."""
        if "Location" in answer.headers:
            self._url = self._client.allowed(answer.location())

    def _whole(self, data: bytes) -> list[bytes]:
        self._sent += len(data)
        return [data]

    def _pieces(self, begin: int, end: int) -> Iterator[bytes]:
        done = begin
        for chunk in self._source.read(begin, end):
            done += len(chunk)
            self._sent += len(chunk)
            yield chunk
            if self._progress:
                self._progress(self._content, done)

    def _cancel(self) -> None:
        """Cancel the upload in the registry. Errors are ignored, because the registry removes abandoned uploads later."""
        if self._url is not None:
            with contextlib.suppress(AttemptFailed, RegistryError):
                self._client.request_once(OciRequest("DELETE", self._url, self._scopes))
