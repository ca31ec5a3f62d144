"""Caches model versions on the local disk by digest, so that a scorer can load them while the registry is unavailable.

Every version is verified on each use, so that a changed or damaged file is detected. The check does not detect a change between
the check and the load. The permissions of the folder must therefore exclude untrusted writers.
"""

# The cache entry of a version is the folder `versions/<hex>/`. It holds the version's files and, in `blobs/`, the content from
# which the files are verified: the requested manifest or index, the manifest selected from an index, and the layers of an
# image. A new entry is written under a temporary name and then renamed.
#
# On every use the manifest is compared with the requested digest, which is the digest that a signature covers. The files are
# compared with the file list in the manifest. The layers of an image are compared with the manifest and unpacked again, and the
# files are compared with the result. Nothing else in an entry is trusted, so a process that writes to a shared cache cannot
# replace a version. Such a process could still change a file between the check and the load that follows. The permissions of
# the folder must therefore exclude untrusted writers.
#
# Each file in `known/` belongs to one tag. It records the last version to which the tag resolved and which has proved to work.
# A process that uses an entry holds a shared lock on `<hex>.use`; the kernel releases the lock when the process dies. If space
# is needed, unused entries are removed, the least recently used first. An entry whose version is recorded in `known/` is
# removed only if no other unused entries are left. An entry in use is never removed, so a version that does not fit beside the
# entries in use is not fetched.

import errno
import fcntl
import hashlib
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

import msgspec

from model_registry import atomic_files, package
from model_registry.channels.channel import Resolution
from model_registry.default_limits import MAX_BYTES, MAX_VERSION_BYTES
from model_registry.errors import Refused, RegistryError
from model_registry.oci import digests
from model_registry.oci.manifest import VersionManifest
from model_registry.package import Package
from model_registry.stores import resolve_index
from model_registry.stores.base import Store
from model_registry.stores.oci_layout import LayoutStore
from model_registry.untrusted_input import json_documents
from model_registry.untrusted_input.files import open_regular

log = logging.getLogger(__name__)

MAX_KNOWN_BYTES = 1 << 16  # the largest size of a file in `known/`
READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)  # errors of writes to a read-only cache, such as one in a container image
BLOBS = "blobs/sha256"
FILES = "files"


class _SavedResolution(msgspec.Struct, frozen=True):
    key: str
    digest: str
    version: str
    revision: int
    history: str = ""


class Cache:
    """A folder of cached model versions, by default below the user's cache folder. Processes may share the folder.

    A version that this process has fetched stays in the cache until the process calls `release` or ends.

    Args:
        max_bytes: The largest size of all versions together.
        max_version_bytes: The largest size of one version.

    Attributes:
        root: The folder. Other modules also store data about the versions in this folder.
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
        self._use_locks: dict[str, int] = {}

    def fetch(self, store: Store, digest: str, *, version: str = "") -> Package:
        """Return the version with this manifest digest, from the disk or else from the store.

        A cached copy is used only if it is intact. If the manifest states no version name, the result has the name `version`.

        Raises:
            Unreachable: The disk fails, or the version is not cached and the store does not answer.
            NotFound, Corrupt: The version is not cached, and content in the store is missing or damaged.
            Refused: The version is too large, does not fit into the cache beside the versions in use, or `package.read` rejects
                its files.
        """
        entry = self.root / "versions" / digests.hex_digits(digest)
        with atomic_files.report_os_errors("the model cache"):
            entry.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock_for_use(entry, digest)
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
        """Record that this process no longer uses the version, so that its cache entry may be removed."""
        if (descriptor := self._use_locks.pop(digest, None)) is not None:
            os.close(descriptor)

    def save_resolution(self, key: str, resolution: Resolution) -> None:
        """Record the version to which a tag resolved, for `load_resolution`. Call this only for a version that can score.

        `key` identifies the repository and the tag. The roles (champion, canary, shadow) are not recorded.

        Raises Unreachable if the disk fails or is full.
        """
        saved = _SavedResolution(key, resolution.digest, resolution.version, resolution.revision, resolution.history)
        path = self._resolution_path(key)
        with atomic_files.report_os_errors("the model cache"):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            atomic_files.replace(path, [msgspec.json.encode(saved)])

    def load_resolution(self, key: str) -> Resolution | None:
        """Return the resolution that `save_resolution` recorded last for `key`; None if there is no readable record.

        The result has no roles.
        """
        saved = _read_resolution(self._resolution_path(key))
        if saved is None or saved.key != key:
            return None
        return Resolution(saved.digest, saved.version, saved.revision, history=saved.history)

    def _fetch(self, store: Store, digest: str, entry: Path, described: Callable[[Store], VersionManifest]) -> VersionManifest:
        """Download the version into its cache entry, unless another process has written the entry in the meantime.

        `described` reads the manifest of the version from a store: the registry or a cache entry.
        """
        with atomic_files.hold_lock(entry.with_suffix(".lock")):
            if intact := self._intact(entry, described):
                return intact
            manifest = described(store)
            self._reserve(entry, sum(blob.size for blob in package.content(manifest)), manifest.version)
            part = entry.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)  # left by a process that died
            try:
                (part / FILES).mkdir(parents=True)
                (part / BLOBS).mkdir(parents=True)
                for data in {store.manifest(digest), resolve_index.select_manifest(store, digest)}:
                    atomic_files.replace(part / BLOBS / digests.hex_digits(digests.from_bytes(data)), [data])
                package.write(store, manifest, part / FILES, max_bytes=self._max_version_bytes, layers=part / BLOBS)
                package.read(part / FILES)
                self._reserve(
                    entry, _size(part), manifest.version, is_written=True
                )  # an unpacked image is larger than its layers
                shutil.rmtree(entry, ignore_errors=True)  # damaged; files that a process has open stay readable
                part.rename(entry)
                atomic_files.sync_directory(entry.parent)
            finally:
                shutil.rmtree(part, ignore_errors=True)
        return manifest

    def _intact(self, entry: Path, described: Callable[[Store], VersionManifest]) -> VersionManifest | None:
        """Return the manifest of a cached version after verifying every file; None if the entry is missing or damaged.

        `described` reads the manifest of the version from a store, here from the cache entry.
        """
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

    def _lock_for_use(self, entry: Path, digest: str) -> None:
        """Mark a cache entry as used by this process, with a shared lock. Waits while another process removes the entry."""
        if digest in self._use_locks:
            return
        try:
            self._use_locks[digest] = atomic_files.open_locked(entry.with_suffix(".use"), fcntl.LOCK_SH)
        except OSError as error:
            if error.errno not in READ_ONLY:
                raise  # on a read-only disk no process removes entries

    def _reserve(self, entry: Path, needed_bytes: int, version: str, *, is_written: bool = False) -> None:
        """Make room for a version of `needed_bytes` bytes in the cache entry `entry`.

        `is_written` states whether the version is already on the disk, under a temporary name.

        Raises:
            Refused: The version is larger than the cache, or does not fit beside the versions in use.
        """
        limit = f"model.cache_bytes limits the cache to {self._max_bytes} bytes"
        if needed_bytes > self._max_bytes:
            raise Refused(
                f"version {version} has {needed_bytes} bytes, but {limit}",
                f"set model.cache_bytes to at least {3 * needed_bytes}, and the size of the cache's volume accordingly: the "
                "cache holds the next version beside the served version and the version before it",
            )
        used_bytes = self._make_room(entry, needed_bytes, 0 if is_written else needed_bytes)
        if used_bytes + needed_bytes > self._max_bytes:
            raise Refused(
                f"the model cache has no room for version {version}: the version has {needed_bytes} bytes, the versions in use "
                f"have {used_bytes} bytes, and {limit}",
                f"set model.cache_bytes to at least {used_bytes + needed_bytes}, and the size of the cache's volume "
                "accordingly; then promote the version again",
            )

    def _make_room(self, entry: Path, needed_bytes: int, unwritten_bytes: int) -> int:
        """Remove unused entries until a new entry fits into the cache's limit and on the disk.

        Args:
            entry: The new entry. If it exists, it is damaged and will be replaced.
            needed_bytes: The size of the new entry.
            unwritten_bytes: The part of this size that is not yet on the disk.

        Returns:
            The size of the remaining entries.
        """
        # Entries that are recorded in `known/` are removed last, and only if this makes enough room.
        for part in (self.root / "versions").glob("*.part"):  # left by a process that died while it wrote an entry
            with atomic_files.try_lock(part.with_suffix(".lock")) as free:
                if free:
                    shutil.rmtree(part, ignore_errors=True)
        others = [path for path in (self.root / "versions").iterdir() if path.is_dir() and not path.suffix and path != entry]
        sizes = {path: _size(path) for path in sorted(others, key=lambda path: path.stat().st_mtime_ns)}
        remembered = {
            digests.hex_digits(saved.digest)
            for path in (self.root / "known").glob("*.json")
            if (saved := _read_resolution(path))
        }
        excess = max(sum(sizes.values()) + needed_bytes - self._max_bytes, unwritten_bytes - shutil.disk_usage(self.root).free)
        excess -= _remove_unused([path for path in sizes if path.name not in remembered], sizes, excess)
        known_good = [path for path in sizes if path.name in remembered and _is_unused(path)]
        if excess <= sum(sizes[path] for path in known_good):
            _remove_unused(known_good, sizes, excess)
        return sum(size for path, size in sizes.items() if path.exists())

    def _resolution_path(self, key: str) -> Path:
        return self.root / "known" / f"{hashlib.sha256(key.encode()).hexdigest()}.json"


def _read_resolution(path: Path) -> _SavedResolution | None:
    try:
        with open_regular(path) as stream:
            saved = json_documents.decode(stream.read(MAX_KNOWN_BYTES + 1), _SavedResolution, max_bytes=MAX_KNOWN_BYTES)
    except (OSError, json_documents.UnreadableDocument):
        return None
    return saved if digests.is_digest(saved.digest) else None


def _remove_unused(entries: Iterable[Path], sizes: Mapping[Path, int], excess: int) -> int:
    """Remove unused entries, first to last, until `excess` bytes are removed. Return the number of removed bytes."""
    removed_bytes = 0
    for entry in entries:
        if removed_bytes >= excess:
            break
        if _remove(entry):
            log.info("removed the model version sha256:%s from the cache, %d bytes", entry.name, sizes[entry])
            removed_bytes += sizes[entry]
    return removed_bytes


def _remove(entry: Path) -> bool:
    """Remove a cache entry unless a process uses it; return whether the entry was removed."""
    with atomic_files.try_lock(entry.with_suffix(".use")) as free:
        if free:
            removed = entry.with_suffix(".part")  # a rename is atomic: no reader sees half an entry
            shutil.rmtree(removed, ignore_errors=True)
            entry.rename(removed)
            shutil.rmtree(removed, ignore_errors=True)
    return free


def _is_unused(entry: Path) -> bool:
    with atomic_files.try_lock(entry.with_suffix(".use")) as free:
        return free


def _touch(entry: Path) -> None:
    try:
        os.utime(entry)
    except OSError as error:
        if error.errno not in READ_ONLY:
            raise


def _size(entry: Path) -> int:
    return sum(path.lstat().st_size for path in entry.rglob("*") if not path.is_dir())
