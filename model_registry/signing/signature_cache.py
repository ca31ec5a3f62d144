"""What proved versions, kept on disk: a file a version. Nothing is trusted because it lies there."""

import contextlib
import logging
import os
from pathlib import Path

from model_registry import atomic_files
from model_registry.oci import digests
from model_registry.signing import bundle
from model_registry.untrusted_input.files import open_regular

log = logging.getLogger(__name__)

KEPT = 1000  # versions whose proofs are kept in a folder; some 2 KB each


class SignatureCache:
    """The proofs of one kind in a folder, made when the first is kept; of None nothing is kept. Any number of processes may
    share the folder."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def kept(self, digest: str) -> bytes | None:
        """What was kept for a version, at most one byte more than a bundle may have."""
        if self._folder is None:
            return None
        try:
            path = _proof(self._folder, digest)
            with open_regular(path) as stream:
                found = stream.read(bundle.MAX_BYTES + 1)
        except OSError:
            return None
        with contextlib.suppress(OSError):  # read-only: then nothing is tidied up either
            os.utime(path)
        return found

    def keep(self, digest: str, proof: bytes) -> None:
        """Keep a proof; the longest unused go where there are too many. On a full disk none is kept."""
        if self._folder is None:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            atomic_files.replace(_proof(self._folder, digest), [proof])
        except OSError as error:
            log.warning("the proof of %s is not kept: %s", digest, error)
        with contextlib.suppress(OSError):  # another process tidies up as well
            for path in sorted(self._folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)[:-KEPT]:
                path.unlink()


def _proof(folder: Path, digest: str) -> Path:
    return folder / f"{digests.hex_digits(digest)}.json"
