"""Unpacks the package inside a container image: the files that a process in the container would see under /models.

A version with a link or a device file in its package is refused. Format: OCI image-spec, layer.md.
"""

# The layers are read as streams from the lowest to the highest. Only regular files under /models are written to the disk. A
# link or device file is recorded but never followed or created. A package needs no links, and following links makes unpacking
# dangerous.

import contextlib
import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import cast

from model_registry import atomic_files
from model_registry.atomic_files import check_paths, is_confined
from model_registry.container_image import layers
from model_registry.container_image.layers import ArchiveMember, UnpackLimits
from model_registry.errors import Corrupt, Refused
from model_registry.oci import manifest
from model_registry.oci.manifest import Descriptor, VersionFile, VersionManifest

ROOT = "models"
MAX_MEMBERS = 10_000  # entries under /models in all layers together
MODEL = "model.onnx"
WHITEOUT = ".wh."
OPAQUE = ".wh..wh..opq"
WHOLE = "io.scorestream.models"
"""Annotation of a layer that hides the content of the lower layers under /models, so that those layers need not be read."""
_HINT = "put model.onnx and its other files into /models of the image; `model-registry push --image` builds such an image"


Blob = Callable[[Descriptor], Iterator[bytes]]
"""A function, such as a store's `blob`, that yields a layer's bytes and verifies their digest at the end."""


@dataclass(slots=True)
class _TreeEntry:
    """The entry at a path under /models.

    Attributes:
        kind: The kind of the entry: file, folder, link or special file.
        layer: The position of the layer that has the entry.
        stored_at: The file on disk that holds the content of a file; None for other entries, or if no files are written.
        content: The descriptor of the content of a file; None for other entries.
    """

    kind: layers.MemberKind
    layer: int
    stored_at: Path | None = None
    content: Descriptor | None = None


def unpack(
    blob: Blob, version: VersionManifest, folder: Path | None, limits: UnpackLimits, max_bytes: int
) -> list[VersionFile]:
    """Unpack the package in an image into an empty folder, and return its files.

    Args:
        blob: Yields the content of a layer.
        version: The manifest of the image.
        folder: The empty folder; None writes no files and only hashes them.
        limits: The remaining limits of all layers together.
        max_bytes: The largest size of all files under /models together, in bytes.

    Raises:
        Corrupt: A layer is damaged or exceeds a limit.
        Refused: The image has no package or several packages, or the package has a link or a special file.
    """
    tree = _ModelsTree(folder / ".image" if folder else None, max_bytes)
    for number, layer in enumerate(needed(version.layers)):
        packed = blob(layer)
        for member in layers.members(layers.unpack(packed, manifest.compression(layer), limits), limits):
            tree.add(member, number)
        for _ in packed:
            pass  # read to the end, where the digest is verified
    return tree.move_files(tree.package(version.name), folder)


def needed(layers: Iterable[Descriptor]) -> list[Descriptor]:
    """Return the layers that may contain files under /models."""
    # The last layer with the annotation WHOLE hides all layers below it.
    all_layers = list(layers)
    opaque_positions = [position for position, layer in enumerate(all_layers) if layer.annotations.get(WHOLE) == "whole"]
    return all_layers[opaque_positions[-1] :] if opaque_positions else all_layers


class _ModelsTree:
    """Collects the files under /models from the layers of an image, lowest layer first.

    Each file is first stored in the temporary folder `folder`, with a number as its name. `move_files` moves the files to their
    paths in the package. If `folder` is None, no files are written.
    """

    # Only `move_files` syncs the files to disk, so that an image that is refused earlier costs no sync.

    def __init__(self, folder: Path | None, max_bytes: int) -> None:
        if folder:
            folder.mkdir()
        self._folder = folder
        self._written = self._members = 0
        self._remaining_bytes = max_bytes
        self._entries: dict[str, _TreeEntry] = {}

    def add(self, member: ArchiveMember, layer: int) -> None:
        """Apply one archive entry of a layer to the tree; entries outside /models are ignored.

        A whiteout entry removes content of lower layers. Raises Corrupt for an invalid path or too many entries, Refused if the
        files are too large.
        """
        path = _path(member)
        if path.partition("/")[0] != ROOT and path not in (OPAQUE, WHITEOUT + ROOT):
            return
        self._members += 1
        if self._members > MAX_MEMBERS:
            raise Corrupt(f"the image has more than {MAX_MEMBERS} entries under /models")
        parent, _, name = path.rpartition("/")
        if name.startswith(WHITEOUT):
            if name == OPAQUE:
                self._hide(parent, layer)
            elif not name.startswith(WHITEOUT + WHITEOUT):
                self._hide(f"{parent}/{name.removeprefix(WHITEOUT)}".lstrip("/"), layer, itself=True)
        elif path.partition("/")[0] == ROOT:
            self._put(path, member, layer)

    def package(self, name: str) -> str:
        """Return the folder of the package: /models if it holds a model, else the folder in /models that holds one.

        Of several such folders, the one called `name` is returned. Raises Refused if there is no such folder.
        """
        if (model_path := f"{ROOT}/{MODEL}") in self._entries:
            return model_path.rpartition("/")[0]
        folders = [path.rpartition("/")[0] for path in self._entries if path.count("/") == 2 and path.endswith(f"/{MODEL}")]
        chosen = [path for path in folders if path == f"{ROOT}/{name}"] or folders
        if len(chosen) != 1:
            fault = f"models are in {', '.join(sorted(folders))}" if folders else "no /models/model.onnx"
            if ROOT in self._entries and self._entries[ROOT].kind != "folder":
                fault = "/models is a link"
            raise Refused(f"the image does not have exactly one package: {fault}", _HINT)
        return chosen[0]

    def move_files(self, root: str, folder: Path | None) -> list[VersionFile]:
        """Move the files of the package into `folder`, and return them. For example, `models/a/b` becomes `FOLDER/a/b`.

        Args:
            root: The folder of the package in the image, such as `models`.
            folder: The destination; None moves nothing, because no files were written.

        Raises:
            Refused: The package has a link or a special file.
            Corrupt: A path is invalid, or there are too many files.
        """
        entries = {path.removeprefix(root + "/"): entry for path, entry in self._entries.items() if path.startswith(root + "/")}
        for path, entry in entries.items():
            if entry.kind in ("link", "special"):
                raise Refused(f"{root}/{path} in the image is a link or a special file", "copy the content there")
        listed = [VersionFile(path, entry.content) for path, entry in sorted(entries.items()) if entry.content]
        if len(listed) > manifest.MAX_FILES:
            raise Corrupt(f"the package in the image has {len(listed)} files; a version has 1 to {manifest.MAX_FILES}")
        check_paths(file.path for file in listed)
        if folder and self._folder:
            for path in (file.path for file in listed):
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                atomic_files.place(cast(Path, entries[path].stored_at), folder / path)
            shutil.rmtree(self._folder)
        return listed

    def _put(self, path: str, member: ArchiveMember, layer: int) -> None:
        if not is_confined(path):
            raise Corrupt(f"the file path {path!r:.200} in the image leads out of /models, or is not a plain relative path")
        for parent in map(str, PurePosixPath(path).parents):
            if parent in self._entries and self._entries[parent].kind != "folder":
                raise Corrupt(f"the file path {path!r:.200} in the image leads through {parent!r:.200}, which is not a folder")
        existing = self._entries.get(path)
        if existing is not None and not (existing.kind == member.kind == "folder"):
            if existing.layer == layer:
                raise Corrupt(f"the file path {path!r:.200} occurs twice in a layer of the image")
            self._hide(path, layer, itself=True)
        self._entries[path] = entry = _TreeEntry(member.kind, layer)
        if member.kind == "file":
            self._write(entry, member)

    def _write(self, entry: _TreeEntry, member: ArchiveMember) -> None:
        self._remaining_bytes -= member.size
        if self._remaining_bytes < 0:
            raise Refused("the files under /models of the image exceed the limit model.max_bytes", "raise model.max_bytes")
        sha = hashlib.sha256()
        if self._folder:
            self._written += 1
            entry.stored_at = self._folder / str(self._written)
        with entry.stored_at.open("xb") if entry.stored_at else contextlib.nullcontext() as stream:
            for chunk in member.content:
                sha.update(chunk)
                if stream:
                    stream.write(chunk)
        digest = f"sha256:{sha.hexdigest()}"
        entry.content = Descriptor(media_type="application/octet-stream", digest=digest, size=member.size)

    def _hide(self, path: str, layer: int, *, itself: bool = False) -> None:
        """Remove the entries in the folder `path` that come from layers lower than `layer`.

        With `itself`, the entry of the folder itself is removed too if it comes from a lower layer.
        """
        prefix = path + "/" if path else ""
        for entry_path in [
            entry_path for entry_path in self._entries if entry_path.startswith(prefix) or (itself and entry_path == path)
        ]:
            if self._entries[entry_path].layer < layer and (reserved := self._entries.pop(entry_path).stored_at):
                reserved.unlink()


def _path(member: ArchiveMember) -> str:
    """Return a member's path relative to the image's root, without `.`. Raises Corrupt if the path leads out of the root."""
    parts = [part for part in member.path.split("/") if part not in ("", ".")]
    if ".." in parts or (member.path.startswith("/") and parts[:1] == [ROOT]):
        raise Corrupt(f"the file path {member.path!r:.200} leads out of the image")
    return "/".join(parts)
