"""A model version as a folder: model.onnx, signature.json, golden.jsonl, README.md. Pushed as one artifact, pulled by digest.

The folder is flat for most models; subfolders are kept."""

import contextlib
import io
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from model_registry import atomic_files, suggestions
from model_registry.container_image import build, unpack
from model_registry.container_image.layers import UnpackLimits
from model_registry.errors import Conflict, Corrupt, NotFound, Refused
from model_registry.oci import build_artifact, digests, manifest, tags
from model_registry.oci.build_artifact import Artifact
from model_registry.oci.manifest import Descriptor, VersionManifest
from model_registry.package import golden, signature_schema
from model_registry.package.golden import GoldenExample
from model_registry.package.signature import Signature
from model_registry.package.signature_schema import parse_signature
from model_registry.stores import parallel_transfer, resolve_index
from model_registry.stores.base import Store
from model_registry.untrusted_input.files import open_regular

MODEL, SIGNATURE, GOLDEN = "model.onnx", "signature.json", "golden.jsonl"
MODELS = (MODEL, "saved_model", "repository", "remote.json")  # for ONNX Runtime, TensorFlow Serving, Open Inference, any server


@dataclass(frozen=True, slots=True)
class Package:
    """One version, its files checked. `signature` is None, and `golden` empty, where the package has none.

    `digest` is its manifest's, the identity of the version, empty for a folder that was not pulled; so are `annotations`.
    """

    folder: Path
    signature: Signature | None
    golden: tuple[GoldenExample, ...]
    model_path: Path
    name: str = ""
    version: str = ""
    digest: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)


def read(folder: Path, signature: Signature | None = None, **stated: Any) -> Package:
    """Check a folder and read what describes the model; the model itself is not opened.

    `signature` stands in for signature.json. `stated` are name, version, digest and annotations, where they are known.
    Raises Refused (SignatureError for the signature): no model, or a file that does not parse or does not fit the others.
    """
    model_path = find_model(folder)
    signature = signature or read_signature(folder)
    with atomic_files.report_os_errors(f"the package {folder}"):
        lines = _read_up_to(folder / GOLDEN, golden.MAX_BYTES)
    return Package(folder, signature, golden.parse_lines(lines or b"", signature), model_path, **stated)


def find_model(folder: Path) -> Path:
    """The file or folder of the model. Raises Refused where there is none."""
    found = next((folder / name for name in MODELS if (folder / name).exists()), None)
    if found is None and not folder.is_dir():
        raise Refused(f"there is no folder {folder}", suggestions.file_question(folder) or "check the path")
    if found is None:
        hint = "export the model as ONNX into that file, or see deploy/model-servers.md for models on servers"
        raise Refused(f"{folder} has no {MODEL}", hint)
    return found


def read_signature(folder: Path) -> Signature | None:
    """What signature.json states, if the folder has one. Raises SignatureError."""
    with atomic_files.report_os_errors(f"the package {folder}"):
        data = _read_up_to(folder / SIGNATURE, signature_schema.MAX_BYTES)
    return None if data is None else parse_signature(data)


def signature_of(store: Store, version: VersionManifest) -> Signature | None:
    """The signature that a stored version states; None where it has none, or is an image. Raises SignatureError."""
    stated = next((file.content for file in version.files if file.path == SIGNATURE), None)
    return parse_signature(b"".join(store.blob(stated))) if stated else None


def push(
    store: Store,
    source: Path | Package,
    name: str,
    version: str,
    *,
    created: datetime | None = None,
    annotations: Mapping[str, str] | None = None,
    more: Mapping[str, bytes] | None = None,
    base: build.BaseImage | None = None,
    only: Collection[str] | None = None,
) -> Descriptor:
    """Store a folder, or the package that `read` found in one, as a version; the tag comes last, so that it never names half a
    version.

    Files whose names begin with a dot are left out, and all but `only` if that is given. `more` are files that the folder
    lacks. With a `base` the version is a container image. The same content gives the same digest everywhere, whatever the
    files' times: `created` is recorded only where the caller states it. Raises BadReference, and Refused: a folder that
    `read` refuses, a version that exists with other content, a version named as a channel.
    """
    tags.check_version(version)
    folder = (source if isinstance(source, Package) else read(source)).folder
    at = created.astimezone(UTC).isoformat(timespec="seconds") if created else None
    with atomic_files.report_os_errors(f"the package {folder}"), contextlib.ExitStack() as held:
        found = build_artifact.hash_files(folder, more or {}, only)
        if base is None:
            return _send(store, version, build_artifact.build_artifact(name, version, at, found, annotations or {}))
        stated = manifest.version_annotations(name, version, at, annotations or {})
        scratch = held.enter_context(tempfile.TemporaryDirectory(prefix="model-registry-"))
        return _send(store, version, build.plan(base, found, stated, Path(scratch) / "layer"))


def content(found: VersionManifest) -> list[Descriptor]:
    """The blobs that hold a version's files, or the layers that do."""
    return [file.content for file in found.files] or unpack.needed(found.layers)


def write(
    store: Store, found: VersionManifest, folder: Path, *, max_bytes: int = manifest.MAX_SIZE, layers: Path | None = None
) -> None:
    """Write a version's files into an empty folder, every byte checked on the way; the layers of an image into `layers`.

    Raises NotFound, Unreachable, Corrupt, and Refused: a version of more than `max_bytes`, an image without a package.
    """
    total = sum(blob.size for blob in content(found))
    if total > max_bytes:
        raise Refused(f"the version has {total} bytes, and at most {max_bytes} are read", "model.max_bytes is the limit")

    def kept(layer: Descriptor) -> Iterator[bytes]:
        with (cast(Path, layers) / digests.hex_digits(layer.digest)).open("wb") as stream:
            for chunk in store.blob(layer):
                stream.write(chunk)
                yield chunk

    if found.layers:
        unpack.unpack(kept if layers else store.blob, found, folder, UnpackLimits(), max_bytes)
        return
    for file in found.files:
        (folder / file.path).parent.mkdir(parents=True, exist_ok=True)
    parallel_transfer.download(store, [(file.content, folder / file.path) for file in found.files])


def pull(store: Store, digest: str, folder: Path, *, version: str = "") -> Package:
    """Write a version's files into a folder that is made, or is empty; every byte is checked on the way.

    None of them is there under its name before all are. Raises NotFound, Corrupt, Refused (the folder is not empty, or `read`
    refuses it) and Unreachable. See `select.describe` for `version`.
    """
    found = resolve_index.describe_version(store, digest, version=version)
    with atomic_files.report_os_errors(f"the folder {folder}"):
        made = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise Refused(f"{folder} is not empty", "choose a new folder")
        part = Path(tempfile.mkdtemp(prefix=".", suffix=".part", dir=folder))  # a folder may be a mount: nothing beside it
        try:
            write(store, found, part)
            checked = read(part, name=found.name, version=found.version, digest=digest, annotations=found.annotations)
            for path in sorted(part.iterdir(), key=lambda path: path.name == MODEL):
                path.rename(folder / path.name)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            if made:
                folder.rmdir()
            raise
        part.rmdir()
        atomic_files.sync_directory(folder)
    return replace(checked, folder=folder, model_path=folder / checked.model_path.name)


def verify(folder: Path, store: Store, found: VersionManifest, max_bytes: int) -> None:
    """Hash every file of a pulled folder again. `store` holds the layers of an image, which say what its files are.

    Raises Corrupt: a file is missing, changed, a link, or too many; a layer is damaged. Raises NotFound: a layer is missing.
    """
    expected = found.files or unpack.unpack(store.blob, found, None, UnpackLimits(), max_bytes)
    with atomic_files.report_os_errors(f"the folder {folder}"):
        wanted = {file.path: file.content for file in expected}
        if odd := set(build_artifact.walk(folder)) ^ wanted.keys():
            raise Corrupt(f"{folder}: {sorted(odd)[0]!r} is missing, or does not belong there")
        for path, stated in wanted.items():
            with open_regular(folder / path) as stream:
                digests.check_stream(stream, stated.digest, stated.size, f"{folder / path}")


def _send(store: Store, version: str, artifact: Artifact) -> Descriptor:
    """Blobs, then the manifest, then the tag."""
    target = manifest.describe_manifest(artifact.manifest)
    store.push_blob(manifest.parse(artifact.manifest).config, io.BytesIO(artifact.config))  # makes the repository
    _is_there(store, version, target)  # refused before anything large is sent
    parallel_transfer.upload(store, artifact.blobs)
    store.push_manifest(artifact.manifest)
    pauses, written = store.settle(), False
    while not _is_there(store, version, target, written=written):
        try:
            store.move_tags({version: target}, expect={version: None, tags.history_tag(version, 1): None})
        except Conflict:
            next(pauses, None)  # another writer made the tag: it is there now, with this content or another
        written = True
    for _ in store.settle():
        if version in store.tags():  # a promotion that follows goes by this list
            break
    return target


def _is_there(store: Store, version: str, target: Descriptor, *, written: bool = False) -> bool:
    """Whether the version is in the store as it should be. Raises Refused where it is there otherwise.

    A tag that was `written`, by this process or another, may be missing from the store's list for a while.
    """
    there = store.tags()
    if version == tags.DEFAULT_CHANNEL or version in tags.channels(there):
        hint = "push a version such as 1.0.0, then promote it to the channel"
        raise Refused(f"{version!r} is a channel, which only model-registry promote moves", hint)
    if version not in there and not written:
        return False
    try:
        found = store.resolve(version).digest
    except NotFound:
        return False
    if found != target.digest:
        message = f"version {version} of {store.repository} exists with other content: it is {found}, this is {target.digest}"
        raise Refused(message, "a version never changes; push this content as a new version")
    return True


def _read_up_to(path: Path, limit: int) -> bytes | None:
    """A file's bytes, or one more than `limit` of them, so that the parser sees that there are too many; None if absent."""
    if not path.is_file():
        return None
    with open_regular(path) as stream:
        return stream.read(limit + 1)
