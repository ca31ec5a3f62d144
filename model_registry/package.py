"""A model version as a folder: model.onnx, signature.json, golden.jsonl, README.md. Pushed as one artifact, pulled by digest.

The folder is flat for most models; subfolders are kept."""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import BinaryIO

from model_registry import digest as digests
from model_registry import files, golden, manifest, signature_file, tags
from model_registry.errors import Conflict, Corrupt, Refused
from model_registry.golden import Golden
from model_registry.manifest import Descriptor, File, Version
from model_registry.signature import Signature
from model_registry.stores import Store, transfer

__all__ = ["Golden", "Package", "pull", "push", "read", "verify"]

MODEL, SIGNATURE, GOLDEN = "model.onnx", "signature.json", "golden.jsonl"
_MEDIA_TYPE = "application/vnd.cncf.model.{}.v1.raw"  # ModelPack
_KINDS = {".jsonl": "dataset", ".json": "weight.config", ".yaml": "weight.config", ".md": "doc", ".txt": "doc", ".py": "code"}


@dataclass(frozen=True, slots=True)
class Package:
    """One version, its files checked. `signature` is None, and `golden` empty, where the package has none.

    `digest` is the manifest's: the identity of the version. It is empty for a folder that was not pulled.
    """

    folder: Path
    name: str
    version: str
    digest: str
    signature: Signature | None
    golden: tuple[Golden, ...]
    model_path: Path


def read(folder: Path, *, name: str = "", version: str = "", digest: str = "") -> Package:
    """Check a folder and read what describes the model; the model itself is not opened.

    Raises Refused (SignatureError for the signature): no model.onnx, or a file that does not parse or does not fit the others.
    """
    if not (folder / MODEL).is_file():
        raise Refused(f"{folder} has no {MODEL}", "export the model as ONNX into that file")
    with files.reported(f"the package {folder}"):
        stated = _read_up_to(folder / SIGNATURE, signature_file.MAX_BYTES)
        lines = _read_up_to(folder / GOLDEN, golden.MAX_BYTES)
    signature = None if stated is None else Signature.parse(stated)
    examples = golden.parse_lines(lines or b"", signature)
    return Package(folder, name, version, digest, signature, examples, folder / MODEL)


def push(store: Store, folder: Path, name: str, version: str, *, created: datetime | None = None) -> Descriptor:
    """Store a folder as a version; the tag comes last, so that it never names half a version.

    Files whose names begin with a dot are left out. The same content gives the same digest everywhere, whatever the files'
    times: `created` is recorded only where the caller states it. Raises BadReference, and Refused: a folder that `read`
    refuses, a version that exists with other content, a version named as a channel.
    """
    tags.check_version(version)
    read(folder)
    with files.reported(f"the package {folder}"):
        contents = _contents(folder)
    at = created.astimezone(UTC).isoformat(timespec="seconds") if created else None
    config = manifest.build_config(name, version, at, (file.content.digest for file in contents))
    data = manifest.build_version(name, version, at, contents, config)
    target = manifest.describe(data)
    store.push_blob(manifest.parse(data).config, io.BytesIO(config))  # small, and makes the repository if there is none
    _is_there(store, version, target)  # refused before anything large is sent
    with files.reported(f"the package {folder}"):
        transfer.upload(store, [(file.content, partial(_open, folder / file.path)) for file in contents])
    store.push_manifest(data)
    while not _is_there(store, version, target):
        try:
            store.move_tags({version: target}, expect={version: None, tags.history_tag(version, 1): None})
        except Conflict:
            continue  # somebody else made the tag: it is there now, with this content or another
    return target


def pull(store: Store, digest: str, folder: Path) -> Package:
    """Write a version's files into a folder that is made, or is empty; every byte is checked on the way.

    Raises NotFound, Corrupt, Refused (the folder is not empty, or `read` refuses it) and Unreachable.
    """
    version = manifest.parse_version(store.manifest(digest))
    with files.reported(f"the folder {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise Refused(f"{folder} is not empty", "choose a new folder")
        for file in version.files:
            (folder / file.path).parent.mkdir(parents=True, exist_ok=True)
        transfer.download(store, [(file.content, folder / file.path) for file in version.files])
    return read(folder, name=version.name, version=version.version, digest=digest)


def verify(folder: Path, version: Version) -> None:
    """Hash every file of a pulled folder again. Raises Corrupt: one is missing, changed, a link, or too many."""
    with files.reported(f"the folder {folder}"):
        found = set(_walk(folder))
        if odd := found ^ {file.path for file in version.files}:
            raise Corrupt(f"{folder}: {sorted(odd)[0]!r} is missing, or does not belong there")
        for file in version.files:
            with (folder / file.path).open("rb") as stream:
                digests.check_stream(stream, file.content.digest, file.content.size, f"{folder / file.path}")


def _is_there(store: Store, version: str, target: Descriptor) -> bool:
    """Whether the version is in the store as it should be. Raises Refused where it is there otherwise."""
    there = store.tags()
    if version == tags.DEFAULT_CHANNEL or version in tags.channels(there):
        hint = "push a version such as 1.0.0, then promote it to the channel"
        raise Refused(f"{version!r} is a channel, which only model-registry promote moves", hint)
    if version not in there:
        return False
    found = store.resolve(version).digest
    if found != target.digest:
        message = f"version {version} of {store.repository} exists with other content: it is {found}, this is {target.digest}"
        raise Refused(message, "a version never changes; push this content as a new version")
    return True


def _open(path: Path) -> BinaryIO:
    return path.open("rb")


def _read_up_to(path: Path, limit: int) -> bytes | None:
    """A file's bytes, or one more than `limit` of them, so that the parser sees that there are too many; None if absent."""
    if not path.is_file():
        return None
    with path.open("rb") as stream:
        return stream.read(limit + 1)


def _contents(folder: Path) -> list[File]:
    """The files to push, by path, hashed."""
    paths = sorted(_walk(folder, hidden=False))
    if len(paths) > manifest.MAX_FILES:
        raise Refused(f"{folder} has {len(paths)} files; a version has at most {manifest.MAX_FILES}")
    try:
        manifest.check_paths(paths)
    except Corrupt as error:
        raise Refused(f"{folder}: {error}", "rename the file") from None
    return [File(path, _describe(folder / path)) for path in paths]


def _walk(folder: Path, *, hidden: bool = True) -> Iterator[str]:
    """Every file's path relative to the folder. Raises Refused for links and what else is neither file nor folder."""
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        if not hidden and any(part.startswith(".") for part in name.parts):
            continue
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise Refused(f"{path} is a link or a special file", "a version holds plain files; copy the content there")
        if path.is_file():
            yield name.as_posix()


def _describe(path: Path) -> Descriptor:
    with path.open("rb") as stream:
        digest, size = digests.of_stream(stream)
    kind = "doc" if path.name == "LICENSE" else _KINDS.get(path.suffix, "weight")
    return Descriptor(media_type=_MEDIA_TYPE.format(kind), digest=digest, size=size)
