"""A model version as a folder: model.onnx, signature.json, golden.jsonl, README.md. Pushed as one artifact, pulled by digest.

The folder is flat for most models; subfolders are kept."""

import contextlib
import io
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from model_registry import files
from model_registry.errors import Conflict, Corrupt, Refused
from model_registry.image import build as image_build
from model_registry.image import unpack as image
from model_registry.image.layers import Limits
from model_registry.oci import digest as digests
from model_registry.oci import manifest, tags
from model_registry.oci import plan as contents
from model_registry.oci.manifest import Descriptor, Version
from model_registry.package import golden, signature_file
from model_registry.package.golden import Golden
from model_registry.package.signature import Signature
from model_registry.stores import Store, transfer
from model_registry.stores import select as versions

__all__ = ["Golden", "Package", "content", "pull", "push", "read", "read_golden", "verify", "write"]

MODEL, SIGNATURE, GOLDEN = "model.onnx", "signature.json", "golden.jsonl"
MODELS = (MODEL, "saved_model", "repository", "remote.json")  # for ONNX Runtime, TensorFlow Serving, Open Inference, any server


@dataclass(frozen=True, slots=True)
class Package:
    """One version, its files checked. `signature` is None, and `golden` empty, where the package has none.

    `digest` is the manifest's: the identity of the version. It is empty for a folder that was not pulled. `annotations` are
    those of its manifest.
    """

    folder: Path
    name: str
    version: str
    digest: str
    signature: Signature | None
    golden: tuple[Golden, ...]
    model_path: Path
    annotations: Mapping[str, str] = field(default_factory=dict)


def read(
    folder: Path, *, name: str = "", version: str = "", digest: str = "", annotations: Mapping[str, str] | None = None
) -> Package:
    """Check a folder and read what describes the model; the model itself is not opened.

    Raises Refused (SignatureError for the signature): no model, or a file that does not parse or does not fit the others.
    """
    model_path = next((folder / name for name in MODELS if (folder / name).exists()), None)
    if model_path is None:
        raise Refused(
            f"{folder} has no {MODEL}",
            "export the model as ONNX into that file, or see deploy/backends.md for models on servers",
        )
    with files.reported(f"the package {folder}"):
        stated = _read_up_to(folder / SIGNATURE, signature_file.MAX_BYTES)
    signature = None if stated is None else Signature.parse(stated)
    examples = read_golden(folder, signature)
    return Package(folder, name, version, digest, signature, examples, model_path, annotations or {})


def read_golden(folder: Path, signature: Signature | None) -> tuple[Golden, ...]:
    """The golden examples of a folder, checked against a signature. Raises Refused, naming the line."""
    with files.reported(f"the package {folder}"):
        lines = _read_up_to(folder / GOLDEN, golden.MAX_BYTES)
    return golden.parse_lines(lines or b"", signature)


def push(
    store: Store,
    folder: Path,
    name: str,
    version: str,
    *,
    created: datetime | None = None,
    annotations: Mapping[str, str] | None = None,
    more: Mapping[str, bytes] | None = None,
    base: image_build.Base | None = None,
) -> Descriptor:
    """Store a folder as a version; the tag comes last, so that it never names half a version.

    Files whose names begin with a dot are left out; `more` are files that the folder lacks. With a `base` the version is a
    container image. The same content gives the same digest everywhere, whatever the files' times: `created` is recorded only
    where the caller states it. Raises BadReference, and Refused: a folder that `read` refuses, a version that exists with
    other content, a version named as a channel.
    """
    tags.check_version(version)
    read(folder)
    at = created.astimezone(UTC).isoformat(timespec="seconds") if created else None
    with files.reported(f"the package {folder}"), contextlib.ExitStack() as held:
        found = contents.of(folder, more or {})
        if base is None:
            plan = contents.artifact(name, version, at, found, annotations or {})
        else:
            stated = manifest.annotations_of(name, version, at, annotations or {})
            scratch = held.enter_context(tempfile.TemporaryDirectory(prefix="model-registry-"))
            plan = image_build.plan(base, found, stated, Path(scratch) / "layer")
        return _send(store, version, plan)


def content(found: Version) -> list[Descriptor]:
    """The blobs that hold a version's files, or the layers that do."""
    return [file.content for file in found.files] or image.needed(found.layers)


def write(
    store: Store, found: Version, folder: Path, *, max_bytes: int = manifest.MAX_SIZE, layers: Path | None = None
) -> None:
    """Write a version's files into an empty folder, every byte checked on the way; the layers of an image into `layers`.

    Raises NotFound, Unreachable, Corrupt, and Refused: a version of more than `max_bytes`, an image without a package.
    """
    total = sum(blob.size for blob in content(found))
    if total > max_bytes:
        raise Refused(f"the version has {total} bytes, and at most {max_bytes} are read", "model.max_bytes is the limit")

    def kept(layer: Descriptor) -> Iterator[bytes]:
        with (cast(Path, layers) / digests.hex_of(layer.digest)).open("wb") as stream:
            for chunk in store.blob(layer):
                stream.write(chunk)
                yield chunk

    if found.layers:
        image.unpack(kept if layers else store.blob, found, folder, Limits(), max_bytes)
        return
    for file in found.files:
        (folder / file.path).parent.mkdir(parents=True, exist_ok=True)
    transfer.download(store, [(file.content, folder / file.path) for file in found.files])


def pull(store: Store, digest: str, folder: Path, *, version: str = "") -> Package:
    """Write a version's files into a folder that is made, or is empty; every byte is checked on the way.

    None of them is there under its name before all are. Raises NotFound, Corrupt, Refused (the folder is not empty, or `read`
    refuses it) and Unreachable. See `versions.describe` for `version`.
    """
    found = versions.describe(store, digest, version=version)
    with files.reported(f"the folder {folder}"):
        made = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise Refused(f"{folder} is not empty", "choose a new folder")
        part = Path(tempfile.mkdtemp(prefix=".", suffix=".part", dir=folder))  # a folder may be a mount: nothing beside it
        try:
            write(store, found, part)
            read(part)
            for path in sorted(part.iterdir(), key=lambda path: path.name == MODEL):
                path.rename(folder / path.name)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            if made:
                folder.rmdir()
            raise
        part.rmdir()
        files.sync_directory(folder)
    return read(folder, name=found.name, version=found.version, digest=digest, annotations=found.annotations)


def verify(folder: Path, store: Store, found: Version, max_bytes: int) -> None:
    """Hash every file of a pulled folder again. `store` holds the layers of an image, which say what its files are.

    Raises Corrupt: a file is missing, changed, a link, or too many; a layer is damaged. Raises NotFound: a layer is missing.
    """
    expected = found.files or image.unpack(store.blob, found, None, Limits(), max_bytes)
    with files.reported(f"the folder {folder}"):
        wanted = {file.path: file.content for file in expected}
        if odd := set(contents.walk(folder)) ^ wanted.keys():
            raise Corrupt(f"{folder}: {sorted(odd)[0]!r} is missing, or does not belong there")
        for path, stated in wanted.items():
            with (folder / path).open("rb") as stream:
                digests.check_stream(stream, stated.digest, stated.size, f"{folder / path}")


def _send(store: Store, version: str, plan: contents.Plan) -> Descriptor:
    """Blobs, then the manifest, then the tag."""
    target = manifest.describe(plan.manifest)
    store.push_blob(manifest.parse(plan.manifest).config, io.BytesIO(plan.config))  # makes the repository if there is none
    _is_there(store, version, target)  # refused before anything large is sent
    transfer.upload(store, plan.blobs)
    store.push_manifest(plan.manifest)
    while not _is_there(store, version, target):
        try:
            store.move_tags({version: target}, expect={version: None, tags.history_tag(version, 1): None})
        except Conflict:
            continue  # somebody else made the tag: it is there now, with this content or another
    return target


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


def _read_up_to(path: Path, limit: int) -> bytes | None:
    """A file's bytes, or one more than `limit` of them, so that the parser sees that there are too many; None if absent."""
    if not path.is_file():
        return None
    with path.open("rb") as stream:
        return stream.read(limit + 1)
