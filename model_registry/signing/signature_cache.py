"""Caches accepted bundles on disk, one file per version. Cached bundles are verified again before use."""

import contextlib
import logging
import os
from pathlib import Path

from model_registry import atomic_files
from model_registry.oci import digests
from model_registry.signing import bundle
from model_registry.untrusted_input.files import open_regular

log = logging.getLogger(__name__)

MAX_ENTRIES = 1000  # of about 2 KB each


class SignatureCache:
    """Bundles of one kind in a folder, which is created when the first one is written.

    Any number of processes may share the folder. With `folder` None nothing is cached.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def read(self, digest: str) -> bytes | None:
        """Return the cached bundle of a version, cut one byte above the size limit; None if there is none."""
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
        """Cache a bundle, and remove those that were unused for the longest time beyond MAX_ENTRIES.

        On a full disk nothing is cached.
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
