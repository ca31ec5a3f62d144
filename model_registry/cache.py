"""Versions on the local disk by digest, so that a scorer starts and swaps while the registry is unavailable.

`versions/<hex>/` holds the files of a version, and below `blobs/` their proofs: the manifest, the manifest that an index
names, and the layers of an image. An entry is written under another name and renamed. On every use the manifest is compared
with the requested digest (which a policy's signature covers), the layers with the manifest, and the files with the manifest's
list or with the layers, unpacked again. Nothing else in an entry is trusted, so that a writer of a shared cache cannot replace
a version. This requires that files do not change between the check and the load directly after it: exclude such a writer by
the permissions of the folder.

`known/` remembers the version that each tag last resolved to and that worked. A process that uses an entry holds a shared lock
on `<hex>.use`, which the kernel releases when the process dies. If space is needed, unused entries are removed, the longest
unused first; an entry in `known/` stays.
"""

import errno
import fcntl
import hashlib
import logging
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from model_registry import atomic_files, package
from model_registry.channels.channel import Resolution
from model_registry.default_limits import MAX_BYTES, MAX_VERSION_BYTES
from model_registry.errors import RegistryError
from model_registry.oci import digests
from model_registry.oci.manifest import VersionManifest
from model_registry.package import Package
from model_registry.stores import resolve_index
from model_registry.stores.base import Store
from model_registry.stores.oci_layout import LayoutStore
from model_registry.untrusted_input import documents
from model_registry.untrusted_input.files import open_regular

log = logging.getLogger(__name__)

MAX_KNOWN_BYTES = 1 << 16  # of a note about the version that a tag named last
READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)  # a cache that was filled beforehand, in a container's image
BLOBS = "blobs/sha256"
FILES = "files"


class _Note(msgspec.Struct, frozen=True):
    key: str
    digest: str
    version: str
    revision: int


class Cache:
    """A folder of versions; by default in the user's cache folder. Processes may share it.

    `max_bytes` limits all versions together, `max_version_bytes` each. A fetched version stays until `release`, or until the
    process ends. Other data of the versions is in `root` beside them.
    """

    def __init__(
        self, root: Path | None = None, *, max_bytes: int = MAX_BYTES, max_version_bytes: int = MAX_VERSION_BYTES
    ) -> None:
        if root is None:
            from platformdirs import user_cache_path

            root = user_cache_path("scorestream") / "models"
        self.root = root
        self._max_bytes = max_bytes
        self._max_version_bytes = max_version_bytes
        self._held: dict[str, int] = {}

    def fetch(self, store: Store, digest: str, *, version: str = "") -> Package:
        """Return the version with this manifest digest, from disk if it is intact, else from the store.

        `version` is its name if its manifest has none.

        Raises:
            Unreachable: The store is needed and does not answer (also NotFound, Corrupt).
            Refused: The version is too large, or `package.read` rejects its files.
        """
        entry = self.root / "versions" / digests.hex_digits(digest)
        with atomic_files.report_os_errors("the model cache"):
            entry.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._hold(entry, digest)
            try:
                named = partial(resolve_index.describe_version, digest=digest, version=version, repository=store.repository)
                manifest = self._intact(entry, named) or self._fetch(store, digest, entry, named)
                _touch(entry)
                stated = {"name": manifest.name, "version": manifest.version, "annotations": manifest.annotations}
                return package.read(entry / FILES, None, digest=digest, **stated)
            except BaseException:
                self.release(digest)
                raise

    def release(self, digest: str) -> None:
        """Record that this process no longer uses the version."""
        if (descriptor := self._held.pop(digest, None)) is not None:
            os.close(descriptor)

    def remember(self, key: str, resolution: Resolution) -> None:
        """Record that `key` (a repository and a tag) resolved to a version that works. Raises Unreachable (disk full)."""
        note = _Note(key, resolution.digest, resolution.version, resolution.revision)
        path = self._note_path(key)
        with atomic_files.report_os_errors("the model cache"):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            atomic_files.replace(path, [msgspec.json.encode(note)])

    def recall(self, key: str) -> Resolution | None:
        """Return what `remember` recorded last, or None if nothing readable exists."""
        note = _read_note(self._note_path(key))
        return Resolution(note.digest, note.version, note.revision) if note and note.key == key else None

    def _fetch(self, store: Store, digest: str, entry: Path, described: Callable[[Store], VersionManifest]) -> VersionManifest:
        """Create the entry, unless another process has just done so."""
        with atomic_files.hold_lock(entry.with_suffix(".lock")):
            if intact := self._intact(entry, described):
                return intact
            manifest = described(store)
            self._make_room(sum(blob.size for blob in package.content(manifest)))
            part = entry.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)  # of a process that died
            try:
                (part / FILES).mkdir(parents=True)
                (part / BLOBS).mkdir(parents=True)
                for data in {store.manifest(digest), resolve_index.select_manifest(store, digest)}:
                    atomic_files.replace(part / BLOBS / digests.hex_digits(digests.from_bytes(data)), [data])
                package.write(store, manifest, part / FILES, max_bytes=self._max_version_bytes, layers=part / BLOBS)
                package.read(part / FILES)
                shutil.rmtree(entry, ignore_errors=True)  # damaged; a process that has it open keeps it
                part.rename(entry)
                atomic_files.sync_directory(entry.parent)
            finally:
                shutil.rmtree(part, ignore_errors=True)
        self._make_room(0)  # an image is larger than its layers say
        return manifest

    def _intact(self, entry: Path, described: Callable[[Store], VersionManifest]) -> VersionManifest | None:
        """Return the version if every byte of the entry is correct; None if the entry is missing or damaged."""
        if not entry.is_dir():
            return None
        cached_store = LayoutStore(entry)
        try:
            manifest = described(cached_store)
            package.verify(entry / FILES, cached_store, manifest, self._max_version_bytes)
        except RegistryError as error:
            log.warning("the cached model version sha256:%s is damaged, fetching it again: %s", entry.name, error)
            return None
        return manifest

    def _hold(self, entry: Path, digest: str) -> None:
        """Use the entry; wait while it is being removed."""
        if digest in self._held:
            return
        try:
            self._held[digest] = atomic_files.open_locked(entry.with_suffix(".use"), fcntl.LOCK_SH)
        except OSError as error:
            if error.errno not in READ_ONLY:
                raise  # on a read-only disk no process removes entries

    def _make_room(self, needed_bytes: int) -> None:
        """Remove entries until `needed_bytes` more fit the limit and the disk, or all remaining entries are needed."""
        for part in (self.root / "versions").glob("*.part"):  # left by a process that died while it wrote an entry
            with atomic_files.try_lock(part.with_suffix(".lock")) as free:
                if free:
                    shutil.rmtree(part, ignore_errors=True)
        entries = [entry for entry in (self.root / "versions").iterdir() if entry.is_dir() and not entry.suffix]
        sizes = {entry: _size(entry) for entry in sorted(entries, key=lambda entry: entry.stat().st_mtime_ns)}
        remembered = {
            digests.hex_digits(note.digest) for path in (self.root / "known").glob("*.json") if (note := _read_note(path))
        }
        total = sum(sizes.values()) + needed_bytes
        limit = min(self._max_bytes, total - needed_bytes + shutil.disk_usage(self.root).free)
        for entry, size in sizes.items():
            if total <= limit:
                return
            if entry.name not in remembered and _remove(entry):
                log.info("removed the model version sha256:%s from the cache, %d bytes", entry.name, size)
                total -= size
        if total > limit:
            log.warning(
                "the model cache needs %d bytes and may have %d, but all versions are in use or known good", total, limit
            )

    def _note_path(self, key: str) -> Path:
        return self.root / "known" / f"{hashlib.sha256(key.encode()).hexdigest()}.json"


def _read_note(path: Path) -> _Note | None:
    try:
        with open_regular(path) as stream:
            note = documents.decode(stream.read(MAX_KNOWN_BYTES + 1), _Note, max_bytes=MAX_KNOWN_BYTES)
    except (OSError, documents.UnreadableDocument):
        return None
    return note if digests.is_digest(note.digest) else None


def _remove(entry: Path) -> bool:
    """Remove an entry that no process uses; return whether it was removed."""
    with atomic_files.try_lock(entry.with_suffix(".use")) as free:
        if free:
            removed = entry.with_suffix(".part")  # a rename is atomic: no reader sees half an entry
            shutil.rmtree(removed, ignore_errors=True)
            entry.rename(removed)
            shutil.rmtree(removed, ignore_errors=True)
    return free


def _touch(entry: Path) -> None:
    try:
        os.utime(entry)
    except OSError as error:
        if error.errno not in READ_ONLY:
            raise


def _size(entry: Path) -> int:
    return sum(path.lstat().st_size for path in entry.rglob("*") if not path.is_dir())
