"""Versions on the local disk, by digest, so that a scorer starts and swaps when the registry is down.

`versions/<hex>/` holds a version's files, and below `blobs/` what vouches for them: the manifest, the one that it names where
it is an index, and the layers of an image. An entry is made under another name and renamed. On every use the manifest is held
against the digest that was asked for (a policy's signature vouches for that one), the layers against the manifest, and the
files against the manifest's list or against the layers, unpacked again. Nothing else in an entry is believed, so that a
writer of a shared cache swaps no version. This rests on files that stay as they are between the check and the load right
after it: a writer who is that quick must be kept out by the folder's permissions.

`known/` remembers the version that each tag last resolved to, once it has worked. A process that uses an entry holds a shared
lock on `<hex>.use`, which the kernel releases when the process dies. When there is no room, unused entries are removed, the
longest unused first; an entry that `known/` names stays.
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
BLOBS, FILES = "blobs/sha256", "files"


class _Known(msgspec.Struct, frozen=True):
    key: str
    digest: str
    version: str
    revision: int


class Cache:
    """A folder of versions; by default in the user's cache folder. Any number of processes may share it.

    `max_bytes` is for all versions together, `max_version_bytes` for one. What `fetch` gave stays until `release`, or until the
    process ends. What else belongs to the versions is kept beside them, in `root`.
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
        """The version with this manifest digest, from disk where it is there undamaged, else from the store.

        `version` is what it is called where its manifest does not say. Raises Unreachable, NotFound and Corrupt where it had to
        be fetched and could not be, Refused where it is too large, or `package.read` refuses its files.
        """
        entry = self.root / "versions" / digests.hex_digits(digest)
        with atomic_files.report_os_errors("the model cache"):
            entry.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._hold(entry, digest)
            try:
                named = partial(resolve_index.describe_version, digest=digest, version=version, repository=store.repository)
                found = self._intact(entry, named) or self._fetch(store, digest, entry, named)
                _touch(entry)
                stated = {"name": found.name, "version": found.version, "annotations": found.annotations}
                return package.read(entry / FILES, None, digest=digest, **stated)
            except BaseException:
                self.release(digest)
                raise

    def release(self, digest: str) -> None:
        """This process does not use the version any more."""
        if (held := self._held.pop(digest, None)) is not None:
            os.close(held)

    def remember(self, key: str, resolution: Resolution) -> None:
        """Note that `key` (a repository and a tag) resolved to a version that works. Raises Unreachable (disk full)."""
        known = _Known(key, resolution.digest, resolution.version, resolution.revision)
        path = self._known(key)
        with atomic_files.report_os_errors("the model cache"):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            atomic_files.replace(path, [msgspec.json.encode(known)])

    def recall(self, key: str) -> Resolution | None:
        """What `remember` noted last, or None where nothing that can be read is there."""
        known = _read_known(self._known(key))
        return Resolution(known.digest, known.version, known.revision) if known and known.key == key else None

    def _fetch(self, store: Store, digest: str, entry: Path, described: Callable[[Store], VersionManifest]) -> VersionManifest:
        """Make the entry new, unless another process has just done it."""
        with atomic_files.hold_lock(entry.with_suffix(".lock")):
            if there := self._intact(entry, described):
                return there
            found = described(store)
            self._make_room(sum(blob.size for blob in package.content(found)))
            part = entry.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)  # of a process that died
            try:
                (part / FILES).mkdir(parents=True)
                (part / BLOBS).mkdir(parents=True)
                for data in {store.manifest(digest), resolve_index.select_manifest(store, digest)}:
                    atomic_files.replace(part / BLOBS / digests.hex_digits(digests.from_bytes(data)), [data])
                package.write(store, found, part / FILES, max_bytes=self._max_version_bytes, layers=part / BLOBS)
                package.read(part / FILES)
                shutil.rmtree(entry, ignore_errors=True)  # damaged; a process that has it open keeps it
                part.rename(entry)
                atomic_files.sync_directory(entry.parent)
            finally:
                shutil.rmtree(part, ignore_errors=True)
        self._make_room(0)  # an image is larger than its layers say
        return found

    def _intact(self, entry: Path, described: Callable[[Store], VersionManifest]) -> VersionManifest | None:
        """The version whose every byte in the entry was checked; None where the entry is missing or damaged."""
        if not entry.is_dir():
            return None
        kept = LayoutStore(entry)
        try:
            found = described(kept)
            package.verify(entry / FILES, kept, found, self._max_version_bytes)
        except RegistryError as error:
            log.warning("the cached model version sha256:%s is damaged, fetching it again: %s", entry.name, error)
            return None
        return found

    def _hold(self, entry: Path, digest: str) -> None:
        """Use the entry; waits while it is being removed."""
        if digest in self._held:
            return
        try:
            self._held[digest] = atomic_files.open_locked(entry.with_suffix(".use"), fcntl.LOCK_SH)
        except OSError as error:
            if error.errno not in READ_ONLY:
                raise  # else nobody else removes anything either

    def _make_room(self, wanted: int) -> None:
        """Remove entries until `wanted` bytes more are within the limit (and on the disk), or all that are left are needed."""
        for part in (self.root / "versions").glob("*.part"):  # what a process left that died while it made an entry
            with atomic_files.try_lock(part.with_suffix(".lock")) as free:
                if free:
                    shutil.rmtree(part, ignore_errors=True)
        entries = [entry for entry in (self.root / "versions").iterdir() if entry.is_dir() and not entry.suffix]
        sizes = {entry: _size(entry) for entry in sorted(entries, key=lambda entry: entry.stat().st_mtime_ns)}
        known = {
            digests.hex_digits(found.digest) for path in (self.root / "known").glob("*.json") if (found := _read_known(path))
        }
        total = sum(sizes.values()) + wanted
        limit = min(self._max_bytes, total - wanted + shutil.disk_usage(self.root).free)
        for entry, size in sizes.items():
            if total <= limit:
                return
            if entry.name not in known and _remove(entry):
                log.info("removed the model version sha256:%s from the cache, %d bytes", entry.name, size)
                total -= size
        if total > limit:
            log.warning(
                "the model cache needs %d bytes and may have %d, but all versions are in use or known good", total, limit
            )

    def _known(self, key: str) -> Path:
        return self.root / "known" / f"{hashlib.sha256(key.encode()).hexdigest()}.json"


def _read_known(path: Path) -> _Known | None:
    try:
        with open_regular(path) as stream:
            known = documents.decode(stream.read(MAX_KNOWN_BYTES + 1), _Known, max_bytes=MAX_KNOWN_BYTES)
    except (OSError, documents.UnreadableDocument):
        return None
    return known if digests.is_digest(known.digest) else None


def _remove(entry: Path) -> bool:
    """Remove an entry that nobody uses; whether it is gone."""
    with atomic_files.try_lock(entry.with_suffix(".use")) as free:
        if free:
            gone = entry.with_suffix(".part")  # not there any more from one moment to the next
            shutil.rmtree(gone, ignore_errors=True)
            entry.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)
    return free


def _touch(entry: Path) -> None:
    try:
        os.utime(entry)
    except OSError as error:
        if error.errno not in READ_ONLY:
            raise


def _size(entry: Path) -> int:
    return sum(path.lstat().st_size for path in entry.rglob("*") if not path.is_dir())
