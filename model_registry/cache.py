"""Versions on the local disk, by digest, so that a scorer starts and swaps when the registry is down.

`versions/<hex>/` holds a version's manifest and its files; an entry is made under another name and renamed, and every file is
hashed again on every use. `known/` remembers what each tag last resolved to and worked.
"""

import hashlib
import logging
import shutil
from pathlib import Path

import msgspec

from model_registry import digest as digests
from model_registry import files, manifest, package
from model_registry.channel import Resolution
from model_registry.errors import Corrupt, RegistryError
from model_registry.package import Package
from model_registry.stores import Store

log = logging.getLogger(__name__)

MANIFEST, FILES = "manifest.json", "files"


class _Known(msgspec.Struct, frozen=True):
    key: str
    digest: str
    version: str
    revision: int


class Cache:
    """A folder of versions; by default in the user's cache folder. Any number of processes may share it."""

    def __init__(self, root: Path | None = None) -> None:
        if root is None:
            from platformdirs import user_cache_path

            root = user_cache_path("scorestream") / "models"
        self._root = root

    @property
    def root(self) -> Path:
        """The folder; what else belongs to its versions is kept beside them."""
        return self._root

    def fetch(self, store: Store, digest: str) -> Package:
        """The version with this manifest digest, from disk where it is there undamaged, else from the store.

        Raises Unreachable, NotFound and Corrupt where it had to be fetched and could not be, Refused where `package.read`
        refuses its files.
        """
        entry = self._root / "versions" / digests.hex_of(digest)
        version = _intact(entry, digest) or self._fetch(store, digest, entry)
        return package.read(entry / FILES, name=version.name, version=version.version, digest=digest)

    def remember(self, key: str, resolution: Resolution) -> None:
        """Note that `key` (a repository and a tag) resolved to a version that works. Raises Unreachable (disk full)."""
        known = _Known(key, resolution.digest, resolution.version, resolution.revision)
        path = self._known(key)
        with files.reported("the model cache"):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            files.replace(path, [msgspec.json.encode(known)])

    def recall(self, key: str) -> Resolution | None:
        """What `remember` noted last, or None where nothing that can be read is there."""
        try:
            known = msgspec.json.decode(self._known(key).read_bytes(), type=_Known)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None
        if known.key != key or not digests.is_digest(known.digest):
            return None
        return Resolution(known.digest, known.version, known.revision)

    def _fetch(self, store: Store, digest: str, entry: Path) -> manifest.Version:
        """Make the entry new, unless another process has just done it."""
        with files.reported("the model cache"):
            entry.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with files.locked(entry.with_suffix(".lock")):
                if version := _intact(entry, digest):
                    return version
                data = store.manifest(digest)
                part = entry.with_suffix(".part")
                shutil.rmtree(part, ignore_errors=True)  # of a process that died
                try:
                    part.mkdir()
                    package.pull(store, digest, part / FILES)
                    files.replace(part / MANIFEST, [data])
                    if entry.exists():
                        shutil.rmtree(entry)
                    part.rename(entry)
                    files.sync_directory(entry.parent)
                finally:
                    shutil.rmtree(part, ignore_errors=True)
        return manifest.parse_version(data)

    def _known(self, key: str) -> Path:
        return self._root / "known" / f"{hashlib.sha256(key.encode()).hexdigest()}.json"


def _intact(entry: Path, digest: str) -> manifest.Version | None:
    """What the entry holds, every byte of it checked; None where it is missing or damaged."""
    try:
        data = (entry / MANIFEST).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("the cached model version %s cannot be read: %s", digest, error)
        return None
    try:
        if digests.of_bytes(data) != digest:
            raise Corrupt(f"{entry / MANIFEST} was changed")
        version = manifest.parse_version(data)
        package.verify(entry / FILES, version)
    except RegistryError as error:
        log.warning("the cached model version %s is damaged, fetching it again: %s", digest, error)
        return None
    return version
