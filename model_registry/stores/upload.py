"""Upload of one blob into a registry: mounted from another repository, sent whole, or sent as a stream that resumes.

Nothing is visible in the registry before the last request, which names the digest. Specification: OCI distribution-spec 1.1,
"Pushing blobs" and "Mounting a blob from another repository".

Registries and the proxies before them limit the size of one request, each in its own way: with 413, or with 416 where the
request has a Content-Range (4 MiB at the largest public one). So there is a list of methods (`upload_methods`), and
the next one is taken where the registry does not take a request for its size or its form.
"""

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

WHOLE_BYTES = 4 << 20  # up to here a blob is sent by one request, out of memory
CHUNKS = (4 << 20, 1 << 20, 256 << 10)  # bytes of one request, where more are not taken
ONE_PUT = 0
STUCK = 2  # requests that broke while they were sent, before a smaller one is tried
TOO_LARGE = frozenset({413, 416})
NO_PATCH = frozenset({400, 405, 411, 501})  # of registries that know no chunks, or no Content-Range
_RANGE = re.compile(r"(?:bytes=)?0-(\d+)")
_OCTETS = {"Content-Type": "application/octet-stream"}


def upload_methods(size: int, least: int = 0) -> list[int]:
    """Return the ways to send `size` bytes, best first: the largest chunk of one PATCH, or ONE_PUT without any.

    `least` is the smallest chunk that the registry takes (`OCI-Chunk-Min-Length`), in bytes.
    """
    smaller = [chunk for chunk in CHUNKS if least <= chunk < size]
    return [ONE_PUT, *smaller] if size <= WHOLE_BYTES else [size, *smaller, ONE_PUT]


@dataclass(frozen=True, slots=True)
class UploadTarget:
    """Where blobs go: `path` is `/v2/<repository>/blobs`; a mount needs the scope to read the other repository as well."""

    path: str
    scope: str
    mounts: tuple[tuple[str, str], ...]  # (repository, scope to read it)
    stored: Callable[[Descriptor], bool]


class _HashedSource:
    """The bytes to send, hashed once on the way. A second reading needs the stream to be seekable."""

    def __init__(self, stream: BinaryIO, content: Descriptor, host: str) -> None:
        self._stream, self._content, self._host = stream, content, host
        self._what = f"what is to be stored as {content.digest}"
        self._start = stream.tell() if stream.seekable() else None
        self._at = self._hashed = 0
        self._sha = hashlib.sha256()

    def check(self) -> None:
        """Read what has not been read yet. Raises Corrupt where the whole is not the declared content."""
        for _ in self.read(self._hashed, self._content.size):
            pass

    def read(self, begin: int, end: int) -> Iterator[bytes]:
        """Yield the bytes from `begin` to `end`. Raises Corrupt, at the latest after the last byte of the content."""
        self._seek(min(begin, self._hashed))
        while self._at < end:
            chunk = self._stream.read(min(digests.CHUNK, end - self._at))
            if not chunk:
                raise Corrupt(f"{self._what} is {self._at} bytes long, not {self._content.size} as declared", self._hint)
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
            raise Corrupt(f"{self._what} is longer than the {content.size} bytes that were declared", self._hint)
        if self._sha.hexdigest() != digests.hex_digits(content.digest):
            raise Corrupt(f"{self._what} has digest sha256:{self._sha.hexdigest()}, not {content.digest}", self._hint)

    def _seek(self, offset: int) -> None:
        if self._at == offset:
            return
        if self._start is None:
            raise Unreachable(f"{self._host}: the connection broke, and the content cannot be read twice")
        self._stream.seek(self._start + offset)
        self._at = offset

    @property
    def _hint(self) -> str:
        return "the content changed while it was pushed; push it again"


class _NextMethod(Exception):
    """The registry does not take a request of this size or form: another way may do."""


class Upload:
    """One blob on its way. `stream` is read from its current position; a resumed upload needs it to be seekable."""

    def __init__(
        self, client: OciClient, target: UploadTarget, content: Descriptor, stream: BinaryIO, progress: Progress | None
    ) -> None:
        self._client, self._target, self._content, self._progress = client, target, content, progress
        self._scopes = (target.scope,)
        self._source = _HashedSource(stream, content, client.host)
        self._ways = upload_methods(content.size)
        self._url: httpx.URL | None = None
        self._offset = self._sent = self._stuck = 0

    def run(self) -> None:
        """Store the blob. Raises Corrupt, and stores nothing, where the stream is not that content; Unreachable."""
        attempts = self._client.attempts()
        if self._target.stored(self._content):
            self._source.check()
            return
        while True:
            before, self._sent = self._offset, 0
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
                    return  # the answer to the last request was lost, not the request
            except RegistryError as error:
                if not isinstance(error, Unreachable):
                    self._cancel()
                raise

    def _shrink(self) -> None:
        """Take a smaller chunk after two requests that broke while they were sent, with nothing stored.

        A proxy that limits requests may close the connection before its answer, 413, is read.
        """
        self._stuck += 1
        smaller = self._ways[1:] if self._ways[0] == ONE_PUT else [way for way in self._ways[1:] if way != ONE_PUT]
        if self._stuck >= STUCK and smaller:
            self._stuck = 0
            self._ways = self._ways[1:]

    def _step(self) -> None:
        """Send the content from the registry's offset to its end. Raises Broken, _NextWay."""
        if self._url is not None and self._ways[0] != ONE_PUT:
            self._find_offset()
        if (self._url is None or self._ways[0] == ONE_PUT) and not self._begin():
            return
        if self._ways[0] == ONE_PUT:
            self._put()
            return
        first = True
        while self._offset < self._content.size:
            self._patch(min(self._offset + self._ways[0], self._content.size), first)
            first = False
        self._finish(list, 0)

    def _begin(self) -> bool:
        """Open an upload. False where nothing needs to be sent, because the blob could be mounted."""
        self._offset, self._url = 0, None
        for repository, scope in self._target.mounts:
            try:
                answer = self._open({"mount": self._content.digest, "from": repository}, scope)
            except RegistryError:  # no token for both repositories, say: the content is sent
                continue
            if answer.status == 201:
                self._source.check()
                return False
            if answer.status == 202:  # not there: the registry has opened an upload instead
                self._cancel()
                self._url = self._client.allowed(answer.location())
        if self._url is None:
            answer = self._open({})
            if answer.status != 202:
                raise answer.error("POST of an upload")
            self._url = self._client.allowed(answer.location())
        self._keep_least(answer)
        return True

    def _open(self, query: dict[str, str], *scopes: str) -> OciResponse:
        url = httpx.URL(f"{self._target.path}/uploads/", params=query)
        return self._client.ask_once(OciRequest("POST", url, (self._target.scope, *scopes)))

    def _keep_least(self, answer: OciResponse) -> None:
        """Drop the chunks that are smaller than the registry takes."""
        least = answer.headers.get("OCI-Chunk-Min-Length", "")
        if least.isascii() and least.isdigit() and len(least) < 16:
            taken = upload_methods(self._content.size, int(least))
            self._ways = [way for way in self._ways if way in taken]

    def _find_offset(self) -> None:
        """Ask for the registry's offset in the upload. An upload that the registry lost, or that is empty, is opened again."""
        assert self._url is not None
        answer = self._client.ask_once(OciRequest("GET", self._url, self._scopes))
        found = _RANGE.fullmatch(answer.headers.get("Range", ""))
        end = int(found[1]) if found and answer.status == 204 else 0
        if not 0 < end < self._content.size:  # "0-0" stands for one byte and for none
            self._url = None
            return
        self._offset = end + 1
        self._follow(answer)

    def _patch(self, end: int, first: bool) -> None:
        """Send the bytes up to `end`. `first` says that the registry has just stated the offset itself."""
        assert self._url is not None
        begin, whole = self._offset, self._content.size
        headers = _OCTETS | {"Content-Range": f"{begin}-{end - 1}"}
        answer = self._client.ask_once(
            OciRequest("PATCH", self._url, self._scopes, headers, lambda: self._pieces(begin, end), end - begin)
        )
        if answer.status == 404 or (answer.status == 416 and not first):
            raise AttemptFailed(f"it lost its place in the upload{answer.said}")
        if answer.status in NO_PATCH and ONE_PUT in self._ways:
            self._ways = self._ways[self._ways.index(ONE_PUT) :]
            raise _NextMethod
        self._next_way(answer)
        if not 200 <= answer.status < 300:
            raise answer.error(f"PATCH of {end - begin} bytes of a blob of {whole}")
        self._follow(answer)
        stored = _RANGE.fullmatch(answer.headers.get("Range", ""))
        # A registry may keep less than was sent; one is known that states the range of the last chunk alone, from 0.
        self._offset = int(stored[1]) + 1 if stored and begin < int(stored[1]) + 1 < end else end

    def _put(self) -> None:
        """Send the whole blob by one request."""
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
        """Send the last request, with a body of `size` bytes. Raises Broken, _NextWay."""
        assert self._url is not None
        digest = httpx.QueryParams({"digest": self._content.digest})
        query = b"&".join(filter(None, (self._url.query, str(digest).encode())))  # the rest as the registry wrote it
        answer = self._client.ask_once(
            OciRequest("PUT", self._url.copy_with(query=query), self._scopes, _OCTETS, body if size else None, size)
        )
        if answer.status == 404:
            raise AttemptFailed(f"it lost the upload{answer.said}")
        if size:
            self._next_way(answer)
        if 200 <= answer.status < 300:
            return
        if answer.status not in (401, 403) and self._target.stored(self._content):
            return  # another push has stored the same content at the same time, which some registries answer with an error
        if answer.status == 400 and self._ways[0] != ONE_PUT and ONE_PUT in self._ways:
            self._ways = self._ways[self._ways.index(ONE_PUT) :]  # its parts do not make up the content
            raise _NextMethod
        raise answer.error(f"PUT of {self._content.digest}, {size} bytes")

    def _next_way(self, answer: OciResponse) -> None:
        """Raise _NextWay where a request was too large and there is another way."""
        if answer.status in TOO_LARGE and len(self._ways) > 1:
            self._ways = self._ways[1:]
            raise _NextMethod

    def _follow(self, answer: OciResponse) -> None:
        """Go on where an answer says; without a Location where the upload is."""
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
        """Have the registry forget the upload; it would do so by itself, later."""
        if self._url is not None:
            with contextlib.suppress(AttemptFailed, RegistryError):
                self._client.ask_once(OciRequest("DELETE", self._url, self._scopes))
