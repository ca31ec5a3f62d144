"""A readable stream over a blob in a store, so that a blob can be pushed into another store without a temporary file."""

from collections.abc import Iterator
from typing import Self

from model_registry.oci.manifest import Descriptor
from model_registry.stores.base import Store


class BlobStream:
    """A seekable binary stream over one blob.

    Seeking backwards requests the blob again from its start, and discards the bytes before the new position.

    A read raises the errors of `Store.blob`. The content is verified only after a read has returned no bytes.
    """

    def __init__(self, store: Store, content: Descriptor) -> None:
        self._store = store
        self._content = content
        self._chunks: Iterator[bytes] = iter(())
        self._rest = b""
        self._at = 0
        self._is_open = False

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes, all remaining bytes if `size` is negative, and no bytes at the end."""
        if not self._is_open:
            self._open()
        if size < 0:
            data = b"".join((self._rest, *self._chunks))
            self._rest = b""
        else:
            if not self._rest and size:
                self._rest = next(self._chunks, b"")
            data = self._rest[:size]
            self._rest = self._rest[size:]
        self._at += len(data)
        return data

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int) -> int:
        """Set the position, counted from the start of the blob."""
        if offset < self._at or not self._is_open:
            self._open()
        while self._at < offset and self.read(offset - self._at):
            pass
        return self._at

    def close(self) -> None:
        self._chunks = iter(())
        self._rest = b""

    def _open(self) -> None:
        self._chunks = self._store.blob(self._content)
        self._rest = b""
        self._at = 0
        self._is_open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
