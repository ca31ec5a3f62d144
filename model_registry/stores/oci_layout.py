"""A store in a folder, in the format of an OCI image layout (image-spec, image-layout.md), which skopeo and oras read.

Tags are entries of index.json with the annotation `org.opencontainers.image.ref.name`. Writers hold a lock and replace
files by rename; readers need no lock. Entries that other tools wrote into index.json are kept.
"""

import contextlib
import io
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from model_registry import atomic_files, suggestions
from model_registry.errors import BadReference, Conflict, Corrupt, NotFound, Refused, Unreachable
from model_registry.oci import digests, manifest
from model_registry.oci.manifest import Descriptor
from model_registry.oci.reference import is_tag
from model_registry.untrusted_input.files import NotRegular, open_regular

REF_NAME = "org.opencontainers.image.ref.name"
VERSION_NAME = "oci-layout"
VERSION_FILE = b'{"imageLayoutVersion":"1.0.0"}'
MAX_INDEX_BYTES = 32 << 20  # some 100,000 tags
LOCK = ".lock"

LayoutIndex = dict[str, Any]


class LayoutStore:
    """A store in a folder; see `Store`. Any number of processes may read and write it at the same time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.repository = f"oci:{path}"

    @property
    def exists(self) -> bool:
        """Whether the folder has a layout. The first push creates it."""
        return (self._path / "index.json").is_file()

    def validator(self, tag: str) -> str:  # noqa: ARG002 - one file holds all tags
        """Return the device, inode, modification time and size of index.json; see `Store`."""
        # Every change of a tag replaces index.json by a file with a later modification time.
        with self._io():
            status = (self._path / "index.json").stat()
        return f"{status.st_dev}-{status.st_ino}-{status.st_mtime_ns}-{status.st_size}"

    def tags(self) -> list[str]:
        return sorted(self._tagged(self._index()))

    def resolve(self, tag: str) -> Descriptor:
        tagged = self._tagged(self._index())
        if tag not in tagged:
            hint = f"model-registry list {self.repository} lists its content"
            raise NotFound(f"{self.repository} has no tag {tag!r}", hint)
        return msgspec.structs.replace(tagged[tag], annotations={})

    def manifest(self, digest: str) -> bytes:
        path = self._blob_path(digest)
        with self._io(digest), open_regular(path) as stream:
            data = stream.read(manifest.MAX_BYTES + 1)
        if len(data) > manifest.MAX_BYTES:
            raise Corrupt(f"{digest} has more than {manifest.MAX_BYTES} bytes, too many for a manifest")
        return b"".join(digests.verify_chunks([data], digest, len(data), f"the manifest {digest}"))

    def has_blob(self, digest: str) -> bool:
        with self._io():
            return self._blob_path(digest).is_file()

    def blob(self, content: Descriptor) -> Iterator[bytes]:
        path = self._blob_path(content.digest)
        with self._io(content.digest), open_regular(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            if size != content.size:
                raise Corrupt(f"{content.digest} is stored with {size} bytes, not {content.size} as declared")
            yield from digests.verify_chunks(
                digests.read_chunks(stream), content.digest, content.size, f"the blob {content.digest}"
            )

    def push_blob(self, content: Descriptor, stream: BinaryIO) -> None:
        path = self._blob_path(content.digest)
        description = f"the content to be stored as {content.digest}"
        with self._io():
            self._create()
            if self._holds(path, content):
                digests.check_stream(stream, content.digest, content.size, description)
                os.utime(path)  # part of a new push: `delete` keeps recent files
            else:
                atomic_files.replace(
                    path, digests.verify_chunks(digests.read_chunks(stream), content.digest, content.size, description)
                )

    def mount_blob(self, content: Descriptor) -> bool:  # noqa: ARG002 - the protocol's
        """Return False; see `Store`. A folder holds one repository."""
        return False

    def push_manifest(self, data: bytes) -> Descriptor:
        for content in manifest.contents(data):
            if not self.has_blob(content.digest):
                raise NotFound(f"{self.repository} has no blob {content.digest}, which the manifest names")
        described = manifest.describe_manifest(data)
        self.push_blob(described, io.BytesIO(data))
        return described

    def push_referrer(self, data: bytes) -> tuple[Descriptor, bool]:
        return self.push_manifest(data), False

    def visibility_attempts(self) -> Iterator[None]:
        yield

    def move_tags(self, to: Mapping[str, Descriptor], *, expect: Mapping[str, str | None]) -> None:
        for tag, target in to.items():
            if not is_tag(tag):
                raise BadReference(f"{tag!r} is not a valid tag", "a tag is 1 to 128 letters, digits, '.', '_' and '-'")
            if not self.has_blob(target.digest):
                raise NotFound(f"{self.repository} has no manifest {target.digest} for the tag {tag!r}")
        with self._io(), atomic_files.hold_lock(self._path / LOCK):
            index = self._index()
            tagged = self._tagged(index)
            for tag, expected in expect.items():
                actual = tagged[tag].digest if tag in tagged else None
                if actual != expected:
                    fault = f"the tag {tag!r} names {actual or 'no manifest'}, but {expected or 'no manifest'} was expected"
                    raise Conflict(fault, "another client moved the tag: read the tag again, and repeat the command")
            other_entries = [entry for entry in index["manifests"] if (entry.get("annotations") or {}).get(REF_NAME) not in to]
            moved = [msgspec.structs.replace(target, annotations={REF_NAME: tag}) for tag, target in to.items()]
            path = self._path / "index.json"
            document = manifest.encode(index | {"manifests": [*other_entries, *msgspec.to_builtins(moved)]})
            atomic_files.replace(path, [document], newer_than_ns=path.stat().st_mtime_ns)

    def delete(self, manifests: Iterable[str], *, expect: Mapping[str, str], grace_seconds: float) -> int | None:
        deleted = set(manifests)
        freed = 0
        with self._io(), atomic_files.hold_lock(self._path / LOCK):
            index = self._index()
            digest_of_tag = {tag: target.digest for tag, target in self._tagged(index).items()}
            if digest_of_tag != expect:
                moved = sorted(digest_of_tag.items() ^ expect.items())[0][0]
                raise Conflict(f"the tag {moved!r} was moved, created or deleted meanwhile", "read the tags again and repeat")
            kept_entries = [entry for entry in index["manifests"] if entry.get("digest") not in deleted]
            path = self._path / "index.json"
            document = manifest.encode(index | {"manifests": kept_entries})
            atomic_files.replace(path, [document], newer_than_ns=path.stat().st_mtime_ns)
            roots = [entry["digest"] for entry in kept_entries]
            for blob in find_unneeded(self._path / "blobs" / "sha256", roots, time.time() - grace_seconds):
                freed += blob.stat().st_size
                blob.unlink()
        return freed

    def referrers(self, digest: str) -> list[Descriptor] | None:  # noqa: ARG002 - the protocol's
        """Return None; see `Store`. A folder has no referrers API; referrers are listed under the fallback tag."""
        return None

    def _holds(self, path: Path, content: Descriptor) -> bool:
        """Return whether the file at `path` has the digest and size of `content`."""
        try:
            with open_regular(path) as stream:
                return digests.from_stream(stream) == (content.digest, content.size)
        except (FileNotFoundError, NotRegular):
            return False

    def _create(self) -> None:
        """Create an empty layout in the folder unless the folder has one. Raises Refused if the folder has other content."""
        if (self._path / "index.json").is_file() and (self._path / "blobs" / "sha256").is_dir():
            return
        # The folder is listed once: another thread or process may be creating the same layout.
        names = {entry.name for entry in self._path.iterdir()} if self._path.is_dir() else set()
        other_names = sorted(name for name in names - {LOCK, "blobs", "index.json"} if not name.endswith(".part"))
        if other_names and VERSION_NAME not in names:
            raise Refused(f"{self._path} holds {other_names[0]!r} and is not an OCI layout", "choose a new or empty folder")
        (self._path / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
        with atomic_files.hold_lock(self._path / LOCK):
            if not (self._path / VERSION_NAME).exists():
                atomic_files.replace(self._path / VERSION_NAME, [VERSION_FILE])
            if not (self._path / "index.json").exists():
                empty = {"schemaVersion": 2, "mediaType": manifest.INDEX_TYPE, "manifests": []}
                atomic_files.replace(self._path / "index.json", [manifest.encode(empty)])

    def _index(self) -> LayoutIndex:
        with self._io(), open_regular(self._path / "index.json") as stream:
            data = stream.read(MAX_INDEX_BYTES + 1)
        if len(data) > MAX_INDEX_BYTES:
            raise Corrupt(f"{self._path}/index.json has more than {MAX_INDEX_BYTES} bytes")
        index = manifest.decode(data, dict[str, Any], f"{self._path}/index.json")
        if index.get("schemaVersion") != 2 or not isinstance(index.get("manifests"), list):
            raise Corrupt(f"{self._path}/index.json is not an OCI index")
        return index

    def _tagged(self, index: LayoutIndex) -> dict[str, Descriptor]:
        tagged: dict[str, Descriptor] = {}
        try:
            entries = msgspec.convert(index["manifests"], list[Descriptor])
        except msgspec.ValidationError as error:
            raise Corrupt(f"{self._path}/index.json is not an OCI index: {error}") from None
        for entry in entries:
            tag = entry.annotations.get(REF_NAME)
            if tag is None:
                continue
            if tag in tagged:
                raise Corrupt(f"{self._path}/index.json has the tag {tag!r} twice")
            tagged[tag] = manifest.check(entry)
        return tagged

    def _blob_path(self, digest: str) -> Path:
        return self._path / "blobs" / "sha256" / digests.hex_digits(digest)

    @contextlib.contextmanager
    def _io(self, content: str | None = None) -> Iterator[None]:
        """Convert OSErrors in the `with` block into registry errors. `content` is the digest that is read, if there is one."""
        try:
            yield
        except NotRegular as error:
            hint = "remove this file, and push the version again"
            raise Corrupt(f"{self.repository}: {error.filename} is not a regular file", hint) from None
        except OSError as error:
            if not (self._path / "index.json").is_file() and isinstance(error, FileNotFoundError | NotADirectoryError):
                hint = "check the path; the first `model-registry push` creates the folder"
                question = suggestions.file_question(self._path)
                raise Unreachable(f"no OCI layout at {self._path}", f"{question} {hint}".strip()) from None
            if content and isinstance(error, FileNotFoundError):
                raise NotFound(f"{self.repository} has nothing with digest {content}") from None
            reason = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
            raise Unreachable(f"{self.repository}: {reason}", "check the folder, its permissions and the space left") from None


def find_unneeded(blobs: Path, roots: Iterable[str], older_than: float) -> Iterator[Path]:
    """Yield the files below `blobs` that may be deleted.

    Files that a manifest in `roots` needs are kept. Files that were written at the time `older_than` (Unix seconds) or later
    are kept too, with all content that they need, because they may be part of a push in progress.
    """
    # Old partial files of dead processes are yielded too.
    entries = {path.name: path.stat() for path in blobs.iterdir()}
    young_names = {name for name, status in entries.items() if status.st_mtime >= older_than}
    needed: set[str] = set()
    for name in [*(digests.hex_digits(root) for root in roots), *young_names]:
        _mark_needed(blobs, name, needed)
    for name in sorted(entries.keys() - needed):
        yield blobs / name


def _mark_needed(blobs: Path, start: str, needed: set[str]) -> None:
    """Add the name of a blob to `needed` and, if the blob is a manifest, the names of all content that it refers to."""
    todo = [start]
    while todo:
        name = todo.pop()
        if name in needed:
            continue
        needed.add(name)
        path = blobs / name
        try:
            with open_regular(path) as stream:
                data = stream.read(manifest.MAX_BYTES + 1)
        except (FileNotFoundError, NotRegular):
            continue
        if len(data) > manifest.MAX_BYTES:
            continue
        if data[:1] != b"{":
            continue
        try:
            todo += [digests.hex_digits(content.digest) for content in manifest.contents(data)]
        except Corrupt:
            continue  # JSON, but no manifest: a signature.json
