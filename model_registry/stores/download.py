"""Downloads a blob from a registry as a stream; verifies its digest, and resumes after a broken connection."""

import dataclasses
import re
from collections.abc import Generator, Iterator
from contextlib import closing

import httpx

from model_registry.errors import Corrupt, NotFound
from model_registry.oci import digests
from model_registry.oci.manifest import Descriptor
from model_registry.stores.base import Progress
from model_registry.stores.http_client import (
    AttemptFailed,
    OciClient,
    OciRequest,
    attempt_failed,
    content_encoding,
    decoded_body,
    read_response,
)
from model_registry.stores.retry import PROGRESS_BYTES

NO_RANGES = frozenset({400, 405, 406, 416, 501})  # statuses of registries that do not support range requests
_RANGE = re.compile(r"bytes (\d+)-\d+/(?:\d+|\*)")


def blob(client: OciClient, call: OciRequest, content: Descriptor, progress: Progress | None) -> Iterator[bytes]:
    """Yield the blob that the request `call` gets, in chunks. It is verified only when the iterator ends without an error.

    Raises:
        NotFound: There is no such blob.
        Unreachable: The registry does not answer.
        Corrupt: The blob is longer than declared (raised at once), or has another size or digest (raised after its last byte).
    """
    done = 0
    with closing(_received(client, call, content)) as received:
        for chunk in digests.verify_chunks(received, content.digest, content.size, f"the blob {content.digest}"):
            done += len(chunk)
            if progress:
                progress(content, done)
            yield chunk


def _received(client: OciClient, call: OciRequest, content: Descriptor) -> Generator[bytes, None, None]:
    """Yield the bytes of a blob; after a broken connection, request the rest again."""
    attempts = client.new_attempt_limit()
    done = previously_done = 0
    ranged = True
    while True:
        headers = call.headers | ({"Range": f"bytes={done}-{content.size - 1}"} if done and ranged else {})
        try:
            with client.stream(dataclasses.replace(call, headers=headers)) as response:
                if "Range" in headers and response.status_code in NO_RANGES:
                    ranged = False
                    continue
                ranged = ranged and not content_encoding(response)  # a range of encoded content is no range of the blob
                for chunk in _body(client, response, content, done):
                    done += len(chunk)
                    yield chunk
                return
        except (AttemptFailed, httpx.TransportError) as error:
            if done == content.size:
                return
            if done - previously_done >= PROGRESS_BYTES:
                attempts.progressed(client.timing.clock())
            previously_done = done
            client.wait(attempts, error if isinstance(error, AttemptFailed) else attempt_failed(error))


def _body(client: OciClient, response: httpx.Response, content: Descriptor, done: int) -> Iterator[bytes]:
    """Yield the bytes of a blob that follow its first `done` bytes."""
    # A registry that ignores the requested range sends the whole blob, whose first `done` bytes are skipped.
    if response.status_code == 404:
        raise NotFound(f"{client.host} has no blob {content.digest}")
    if response.status_code not in (200, 206):
        raise read_response(response).error(f"GET of {content.digest}")
    start = 0
    if response.status_code == 206:
        content_range = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
        start = int(content_range[1]) if content_range else -1
        if start != done:
            raise Corrupt(f"{client.host} sends a part of {content.digest} that was not requested")
    stated = response.headers.get("Content-Length")
    # Some servers name the blob's own compression as the encoding: then the length is that of the blob.
    is_raw = not content_encoding(response) or stated == str(content.size - start)
    declared = stated if is_raw else None
    if declared is not None and declared != str(content.size - start):
        raise Corrupt(f"the blob {content.digest} is stored with {declared} bytes, not {content.size - start} as declared")
    skip = done - start
    for chunk in response.iter_raw() if is_raw else decoded_body(response):
        if skip < len(chunk):
            yield chunk[skip:] if skip else chunk
        skip = max(0, skip - len(chunk))
