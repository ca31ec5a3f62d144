"""Content digests (`sha256:<hex>`): syntax checks, and verification of content while it streams.

Only SHA-256 is supported, the algorithm that every OCI registry must know (image-spec, descriptor.md).
"""

import hashlib
import io
import re
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from model_registry.errors import Corrupt

CHUNK = 1 << 20  # bytes read at a time
_SYNTAX = re.compile(r"sha256:[0-9a-f]{64}")


def is_digest(text: str) -> bool:
    """Return whether a text is a digest: `sha256:` and 64 hexadecimal digits in lower case."""
    return _SYNTAX.fullmatch(text) is not None


def hex_digits(digest: str) -> str:
    """Return the 64 hexadecimal digits of a digest, which are safe as a file name. Raises Corrupt if the text is no digest."""
    if not is_digest(digest):
        raise Corrupt(f"{digest!r:.120} is not a valid digest; it must be sha256: and 64 lower-case hexadecimal digits")
    return digest.removeprefix("sha256:")


def short(digest: str) -> str:
    """Return the first characters of a digest, for display."""
    return digest[: len("sha256:") + 12]


def from_bytes(data: bytes) -> str:
    """Return the digest of some bytes."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def from_stream(stream: BinaryIO) -> tuple[str, int]:
    """Read a stream to its end, and return the digest and the size in bytes of the bytes read."""
    sha = hashlib.sha256()
    size = 0
    while chunk := stream.read(CHUNK):
        sha.update(chunk)
        size += len(chunk)
    return f"sha256:{sha.hexdigest()}", size


def read_chunks(stream: BinaryIO | io.RawIOBase) -> Iterator[bytes]:
    """Yield the unread bytes of a stream in chunks of at most CHUNK bytes."""
    while chunk := stream.read(CHUNK):
        yield chunk


def verify_chunks(content: Iterable[bytes], digest: str, size: int, description: str) -> Iterator[bytes]:
    """Yield the chunks of `content` while hashing them. The content is verified only when the iterator ends without an error.

    Raises:
        Corrupt: The content has more than `size` bytes (raised at once), or another size or digest (raised at the end); the
            message starts with `description`.
    """
    expected = hex_digits(digest)
    sha = hashlib.sha256()
    received = 0
    for chunk in content:
        received += len(chunk)
        if received > size:
            raise Corrupt(f"{description} is longer than the {size} bytes that were declared", _hint(digest))
        sha.update(chunk)
        yield chunk
    if received != size:
        raise Corrupt(f"{description} is {received} bytes long, not {size} as declared", _hint(digest))
    if sha.hexdigest() != expected:
        raise Corrupt(f"{description} has digest sha256:{sha.hexdigest()}, not {digest}", _hint(digest))


def check_stream(stream: BinaryIO, digest: str, size: int, description: str) -> None:
    """Read a stream to its end and verify the bytes read. Raises Corrupt in the same cases as `verify_chunks`."""
    for _ in verify_chunks(read_chunks(stream), digest, size, description):
        pass


def _hint(digest: str) -> str:
    return f"the stored content of {digest} is damaged; push that version again into a fresh repository, or restore it"
