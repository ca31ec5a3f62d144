"""Builds the artifact of a package folder: a ModelPack manifest with one raw layer per file."""

import io
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from model_registry.atomic_files import check_paths
from model_registry.errors import Corrupt, Refused
from model_registry.oci import digests, manifest
from model_registry.oci.manifest import Descriptor, VersionFile
from model_registry.untrusted_input.files import open_regular

OpenContent = Callable[[], BinaryIO]
_MEDIA_TYPE = "application/vnd.cncf.model.{}.v1.raw"  # ModelPack
_KINDS = {".jsonl": "dataset", ".json": "weight.config", ".yaml": "weight.config", ".md": "doc", ".txt": "doc", ".py": "code"}


@dataclass(frozen=True, slots=True)
class Artifact:
    """The content of one version to push: a manifest, its config and its other blobs.

    Attributes:
        manifest: The bytes of the manifest.
        config: The bytes of the config.
        blobs: The descriptor of each other blob, with a function that opens the blob's content.
    """

    manifest: bytes
    config: bytes
    blobs: tuple[tuple[Descriptor, OpenContent], ...]


def hash_files(
    folder: Path, more: Mapping[str, bytes], only: Collection[str] | None = None
) -> list[tuple[VersionFile, OpenContent]]:
    """Return the files of a package to push, with digests, sorted by path. Each file has a function that opens it.

    Args:
        folder: The folder of the package. Files and folders whose names begin with a dot are left out.
        more: The content of additional files that are not in the folder, by path.
        only: The paths of the files in the folder to include; None includes all.

    Raises:
        Refused: The folder holds a link, a special file, an invalid path or too many files.
    """
    paths = [path for path in walk(folder, hidden=False) if only is None or path in only]
    sources: dict[str, OpenContent] = {path: file_opener(folder / path) for path in paths}
    sources |= {path: partial(io.BytesIO, data) for path, data in more.items()}
    if len(sources) > manifest.MAX_FILES:
        raise Refused(f"{folder} has {len(sources)} files; a version has at most {manifest.MAX_FILES}")
    try:
        check_paths(sorted(sources))
    except Corrupt as error:
        raise Refused(f"{folder}: {error}", "rename the file") from None
    return [(VersionFile(path, _describe(path, sources[path])), sources[path]) for path in sorted(sources)]


def walk(folder: Path, *, hidden: bool = True) -> Iterator[str]:
    """Yield the path of every file relative to the folder; without `hidden`, names that begin with a dot are skipped.

    Raises Refused for links and special files.
    """
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        if not hidden and any(part.startswith(".") for part in name.parts):
            continue
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise Refused(f"{path} is a link or a special file", "a version holds plain files; copy the content there")
        if path.is_file():
            yield name.as_posix()


def file_opener(path: Path) -> OpenContent:
    """Return a function that opens a file for reading."""
    return lambda: open_regular(path)


def build_artifact(
    name: str, version: str, created: str | None, files: list[tuple[VersionFile, OpenContent]], more: Mapping[str, str]
) -> Artifact:
    """Build the ModelPack artifact of a version from its files; `more` are additional annotations of the manifest."""
    config = manifest.build_config(name, version, created, (file.content.digest for file, _ in files))
    data = manifest.build_version(name, version, created, [file for file, _ in files], config, more)
    return Artifact(data, config, tuple((file.content, source) for file, source in files))


def _describe(path: str, source: OpenContent) -> Descriptor:
    with source() as stream:
        digest, size = digests.from_stream(stream)
    name = path.rpartition("/")[2]
    kind = "doc" if name == "LICENSE" else _KINDS.get(Path(name).suffix, "weight")
    return Descriptor(media_type=_MEDIA_TYPE.format(kind), digest=digest, size=size)
