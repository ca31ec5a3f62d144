"""Caches accepted signature bundles on disk, one file per digest. The caller verifies a cached bundle again before use."""

import contextlib
import logging
import os
from pathlib import Path

from model_registry import atomic_files
from model_registry.oci import digests
from model_registry.signing import bundle
from model_registry.untrusted_input.files import open_regular

log = logging.getLogger(__name__)

MAX_ENTRIES = 1000  # bundles of about 2 KB each


class SignatureCache:
    """A cache of signature bundles of one kind, by digest. The folder is created when the first bundle is stored.

    Any number of processes may share the folder. If `folder` is None, nothing is cached.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def read(self, digest: str) -> bytes | None:
        """Return the cached bundle of a digest; None if there is none."""
        # A file that is too large is cut to one byte more than the size limit, so that the parser rejects it.
        if self._folder is None:
            return None
        try:
            path = _bundle_path(self._folder, digest)
            with open_regular(path) as stream:
                data = stream.read(bundle.MAX_BYTES + 1)
        except OSError:
            return None
        with contextlib.suppress(OSError):  # on a read-only file system nothing is removed either
            os.utime(path)
        return data

    def write(self, digest: str, bundle_bytes: bytes) -> None:
        """Cache the bundle of a digest. If there are more than MAX_ENTRIES bundles, remove the least recently used.

        If the disk is full, the bundle is not cached and a warning is logged.
        """
        if self._folder is None:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            atomic_files.replace(_bundle_path(self._folder, digest), [bundle_bytes])
        except OSError as error:
            log.warning("cannot cache the signature of %s: %s", digest, error)
        with contextlib.suppress(OSError):  # another process may remove files too
            for path in sorted(self._folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)[:-MAX_ENTRIES]:
                path.unlink()


def _bundle_path(folder: Path, digest: str) -> Path:
    return folder / f"{digests.hex_digits(digest)}.json"
