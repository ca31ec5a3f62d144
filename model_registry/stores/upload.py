"""A blob into a registry: mounted from another repository, sent whole, or sent as a stream that goes on where it broke.

Nothing is visible in the registry before the last request, which names the digest. Specification: OCI distribution-spec 1.1,
"Pushing blobs" and "Mounting a blob from another repository".
"""

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

import httpx

from model_registry.errors import RegistryError, Unreachable
from model_registry.oci import digests
from model_registry.oci.manifest import Descriptor
from model_registry.stores import Progress
from model_registry.stores.http import Answer, Broken, Call, Client
from model_registry.stores.retry import PROGRESS_BYTES

WHOLE_BYTES = 4 << 20  # up to here a blob is sent by one request, out of memory
_RANGE = re.compile(r"(?:bytes=)?0-(\d+)")
_OCTETS = {"Content-Type": "application/octet-stream"}


@dataclass(frozen=True, slots=True)
class Target:
    """Where blobs go: `path` is `/v2/<repository>/blobs`; a mount needs the scope to read the other repository as well."""

    path: str
    scope: str
    mounts: tuple[tuple[str, str], ...]  # (repository, scope to read it)
    stored: Callable[[Descriptor], bool]


class Upload:
    """One blob on its way. `stream` is read from where it stands; going on after a break needs it to be seekable."""

    def __init__(
        self, client: Client, target: Target, content: Descriptor, stream: BinaryIO, progress: Progress | None
    ) -> None:
        self._client, self._target, self._content, self._progress = client, target, content, progress
        self._scopes, self._what = (target.scope,), f"what is to be stored as {content.digest}"
        self._stream = stream
        self._start = stream.tell() if stream.seekable() else None
        self._read = False
        self._url: httpx.URL | None = None
        self._offset = self._sent = 0

    def run(self) -> None:
        """Store the blob. Raises Corrupt, and stores nothing, where the stream is not that content; Unreachable."""
        attempts = self._client.attempts()
        if self._target.stored(self._content):
            digests.check_stream(self._stream, self._content.digest, self._content.size, self._what)
            return
        while True:
            before, self._sent = self._offset, 0
            try:
                self._step()
                return
            except Broken as failure:
                if self._offset - before >= PROGRESS_BYTES:
                    attempts.progressed(self._client.timing.clock())
                elif self._sent >= PROGRESS_BYTES:
                    attempts.transferred(self._client.timing.clock())
                self._client.wait(attempts, failure)
                if self._target.stored(self._content):
                    return  # the answer to the last request was lost, not the request
            except RegistryError as error:
                if not isinstance(error, Unreachable):
                    self._cancel()
                raise

    def _step(self) -> None:
        """From where the upload stands to its end. Raises Broken."""
        whole = self._content.size <= WHOLE_BYTES
        if self._url is not None and not whole:
            self._look()
        if (self._url is None or whole) and not self._begin():
            return
        if whole:
            self._finish(b"".join(self._rest()))
            return
        if self._offset < self._content.size:
            self._send_rest()
        self._finish(b"")

    def _begin(self) -> bool:
        """Open an upload. False where nothing needs to be sent, because the blob could be mounted."""
        self._offset, self._url = 0, None
        for repository, scope in self._target.mounts:
            answer = self._open({"mount": self._content.digest, "from": repository}, scope)
            if answer.status == 201:
                digests.check_stream(self._stream, self._content.digest, self._content.size, self._what)
                return False
            if answer.status == 202:  # not there: the registry has opened an upload instead
                self._cancel()
                self._url = self._client.allowed(answer.location())
        if self._url is None:
            answer = self._open({})
            if answer.status != 202:
                raise answer.error("POST of an upload")
            self._url = self._client.allowed(answer.location())
        return True

    def _open(self, query: dict[str, str], *scopes: str) -> Answer:
        url = httpx.URL(f"{self._target.path}/uploads/", params=query)
        return self._client.ask_once(Call("POST", url, (self._target.scope, *scopes)))

    def _look(self) -> None:
        """Ask how much of the upload has arrived; an upload that is gone, or has nothing yet, begins anew."""
        assert self._url is not None
        answer = self._client.ask_once(Call("GET", self._url, self._scopes))
        found = _RANGE.fullmatch(answer.headers.get("Range", ""))
        end = int(found[1]) if found and answer.status == 204 else 0
        if not 0 < end < self._content.size:  # "0-0" stands for one byte and for none
            self._url = None
            return
        self._offset = end + 1
        if "Location" in answer.headers:
            self._url = self._client.allowed(answer.location())

    def _send_rest(self) -> None:
        assert self._url is not None
        size = self._content.size
        headers = _OCTETS | {"Content-Range": f"{self._offset}-{size - 1}"}
        answer = self._client.ask_once(Call("PATCH", self._url, self._scopes, headers, self._rest, size - self._offset))
        if answer.status in (404, 416):
            raise Broken("it lost its place in the upload")
        if answer.status != 202:
            raise answer.error("PATCH of an upload")
        self._url = self._client.allowed(answer.location())
        self._offset = size

    def _finish(self, data: bytes) -> None:
        assert self._url is not None
        url = self._url.copy_set_param("digest", self._content.digest)
        body = (lambda: [data]) if data else None
        answer = self._client.ask_once(Call("PUT", url, self._scopes, _OCTETS, body, len(data)))
        if answer.status == 404:
            raise Broken("it lost the upload")
        if answer.status != 201:
            raise answer.error(f"PUT of {self._content.digest}")
        if data and self._progress:
            self._progress(self._content, len(data))

    def _rest(self) -> Iterator[bytes]:
        """What is still to be sent; what was sent before is read again for its digest. Raises Corrupt at the end."""
        if self._read:
            if self._start is None:
                raise Unreachable(f"{self._client.host}: the connection broke, and the content cannot be read twice")
            self._stream.seek(self._start)
        self._read = True
        skip, done = self._offset, 0
        for chunk in digests.verified(digests.chunks(self._stream), self._content.digest, self._content.size, self._what):
            done += len(chunk)
            if done > skip:
                self._sent = done - skip
                yield chunk[max(0, skip - (done - len(chunk))) :]
                if self._progress and len(chunk) and self._content.size > WHOLE_BYTES:
                    self._progress(self._content, done)

    def _cancel(self) -> None:
        """Let the registry forget the upload; it would do so by itself, later."""
        if self._url is not None:
            with contextlib.suppress(Broken, RegistryError):
                self._client.ask_once(Call("DELETE", self._url, self._scopes))
