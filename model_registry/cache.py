"""Versions on the local disk, by digest, so that a scorer starts and swaps when the registry is down.

`versions/<hex>/` holds a version's manifest, a list of its files and the files; an entry is made under another name and
renamed, and every file is hashed again on every use. `known/` remembers what each tag last resolved to and worked. Whoever uses
an entry holds a shared lock on `<hex>.use`, which the kernel lets go of when the process dies; what nobody uses goes when there
is no room, the longest unused first, but never what `known/` names.
"""

import errno
import hashlib
import logging
import os
import shutil
from pathlib import Path

import msgspec

from model_registry import digest as digests
from model_registry import files, image, manifest, package, versions
from model_registry.channel import Resolution
from model_registry.errors import Corrupt, RegistryError
from model_registry.limits import MAX_BYTES, MAX_VERSION_BYTES
from model_registry.manifest import Descriptor, File
from model_registry.package import Package
from model_registry.stores import Store

log = logging.getLogger(__name__)

READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)  # a cache that was filled beforehand, in a container's image
MANIFEST, CONTENT, FILES = "manifest.json", "content.json", "files"


class _Known(msgspec.Struct, frozen=True):
    key: str
    digest: str
    version: str
    revision: int


class _Content(msgspec.Struct, frozen=True):
    """What was made of a manifest: that of an image does not list files, and one in an index is another manifest."""

    name: str
    version: str
    annotations: dict[str, str]
    files: dict[str, Descriptor]

    def __post_init__(self) -> None:
        """Refuse what no version could have made. Raises ValueError, which the decoder reports."""
        if not self.files:
            raise ValueError("no files")


class Cache:
    """A folder of versions; by default in the user's cache folder. Any number of processes may share it.

    `max_bytes` is for all versions together, `max_version_bytes` for one. What `fetch` gave stays until `release`, or until the
    process ends.
    """

    def __init__(
        self, root: Path | None = None, *, max_bytes: int = MAX_BYTES, max_version_bytes: int = MAX_VERSION_BYTES
    ) -> None:
        if root is None:
            from platformdirs import user_cache_path

            root = user_cache_path("scorestream") / "models"
        self._root = root
        self._max_bytes = max_bytes
        self._max_version_bytes = max_version_bytes
        self._held: dict[str, int] = {}

    @property
    def root(self) -> Path:
        """The folder; what else belongs to its versions is kept beside them."""
        return self._root

    def fetch(self, store: Store, digest: str, *, version: str = "") -> Package:
        """The version with this manifest digest, from disk where it is there undamaged, else from the store.

        `version` is what it is called where its manifest does not say. Raises Unreachable, NotFound and Corrupt where it had to
        be fetched and could not be, Refused where it is too large, or `package.read` refuses its files.
        """
        entry = self._root / "versions" / digests.hex_of(digest)
        with files.reported("the model cache"):
            entry.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._hold(entry, digest)
            try:
                content = _intact(entry, digest) or self._fetch(store, digest, entry, version)
                _touch(entry)
                stated = {"name": content.name, "version": content.version, "digest": digest}
                return package.read(entry / FILES, annotations=content.annotations, **stated)
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
        with files.reported("the model cache"):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            files.replace(path, [msgspec.json.encode(known)])

    def recall(self, key: str) -> Resolution | None:
        """What `remember` noted last, or None where nothing that can be read is there."""
        known = _read_known(self._known(key))
        return Resolution(known.digest, known.version, known.revision) if known and known.key == key else None

    def _fetch(self, store: Store, digest: str, entry: Path, version: str) -> _Content:
        """Make the entry new, unless another process has just done it."""
        with files.locked(entry.with_suffix(".lock")):
            if content := _intact(entry, digest):
                return content
            found = versions.describe(store, digest, version=version)
            self._make_room(sum(blob.size for blob in [file.content for file in found.files] or image.needed(found.layers)))
            part = entry.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)  # of a process that died
            try:
                (part / FILES).mkdir(parents=True)
                written = package.write(store, found, part / FILES, max_bytes=self._max_version_bytes)
                stated = {file.path: file.content.bare() for file in written}
                content = _Content(found.name, found.version, dict(found.annotations), stated)
                package.read(part / FILES)
                files.replace(part / CONTENT, [msgspec.json.encode(content)])
                files.replace(part / MANIFEST, [store.manifest(digest)])
                shutil.rmtree(entry, ignore_errors=True)  # damaged; who has it open keeps it
                part.rename(entry)
                files.sync_directory(entry.parent)
            finally:
                shutil.rmtree(part, ignore_errors=True)
        self._make_room(0)  # an image is larger than its layers say
        return content

    def _hold(self, entry: Path, digest: str) -> None:
        """Use the entry; waits while it is being removed."""
        if digest in self._held:
            return
        try:
            self._held[digest] = files.lock_shared(entry.with_suffix(".use"))
        except OSError as error:
            if error.errno not in READ_ONLY:
                raise  # else nobody else removes anything either

    def _make_room(self, wanted: int) -> None:
        """Remove entries until `wanted` bytes more are within the limit (and on the disk), or all that are left are needed."""
        for part in (self._root / "versions").glob("*.part"):
            _sweep(part)
        entries = [entry for entry in (self._root / "versions").iterdir() if entry.is_dir() and not entry.suffix]
        sizes = {entry: _size(entry) for entry in sorted(entries, key=_last_use)}
        known = {digests.hex_of(found.digest) for path in self._all_known() if (found := _read_known(path))}
        total = sum(sizes.values()) + wanted
        limit = min(self._max_bytes, total - wanted + shutil.disk_usage(self._root).free)
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

    def _all_known(self) -> list[Path]:
        return list((self._root / "known").glob("*.json"))

    def _known(self, key: str) -> Path:
        return self._root / "known" / f"{hashlib.sha256(key.encode()).hexdigest()}.json"


def _read_known(path: Path) -> _Known | None:
    try:
        known = msgspec.json.decode(path.read_bytes(), type=_Known)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return known if digests.is_digest(known.digest) else None


def _remove(entry: Path) -> bool:
    """Remove an entry that nobody uses; whether it is gone."""
    with files.locked_if_free(entry.with_suffix(".use")) as free:
        if free:
            gone = entry.with_suffix(".part")  # not there any more from one moment to the next
            shutil.rmtree(gone, ignore_errors=True)
            entry.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)
    return free


def _sweep(part: Path) -> None:
    """Remove what a process left that died while it made an entry."""
    with files.locked_if_free(part.with_suffix(".lock")) as free:
        if free:
            shutil.rmtree(part, ignore_errors=True)


def _touch(entry: Path) -> None:
    """Note the time of the last use, where that can be noted."""
    try:
        os.utime(entry)
    except OSError as error:
        if error.errno not in READ_ONLY:
            raise


def _size(entry: Path) -> int:
    return sum(path.lstat().st_size for path in entry.rglob("*"))


def _last_use(entry: Path) -> int:
    return entry.stat().st_mtime_ns


def _intact(entry: Path, digest: str) -> _Content | None:
    """What the entry holds, every byte of it checked; None where it is missing or damaged."""
    try:
        data = (entry / MANIFEST).read_bytes()
        stated = (entry / CONTENT).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("the cached model version %s cannot be read: %s", digest, error)
        return None
    try:
        if digests.of_bytes(data) != digest:
            raise Corrupt(f"{entry / MANIFEST} was changed")
        content = manifest.decode(stated, _Content, f"{entry / CONTENT}")
        package.verify(entry / FILES, _files(data, content))
    except RegistryError as error:
        log.warning("the cached model version %s is damaged, fetching it again: %s", digest, error)
        return None
    return content


def _files(data: bytes, content: _Content) -> list[File]:
    """What must be there: as the manifest says where it lists files, which its digest vouches for, else as was written."""
    listed = () if manifest.is_index(data) else manifest.parse_version(data).files
    return list(listed) or [File(path, manifest.check(one)) for path, one in content.files.items()]
