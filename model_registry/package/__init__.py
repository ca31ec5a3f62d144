"""Reads, pushes, pulls and verifies packages.

A package is a folder with the files of one model version: model.onnx, signature.json, golden.jsonl, README.md. Files in
subfolders belong to the package too.
"""

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
from model_registry.errors import BadReference, Conflict, Corrupt, NotFound, Refused
from model_registry.oci import build_artifact, digests, manifest, tags
from model_registry.oci.build_artifact import Artifact
from model_registry.oci.manifest import Descriptor, VersionManifest
from model_registry.package import golden_examples, signature_schema
from model_registry.package.golden_examples import GoldenExample
from model_registry.package.signature import Signature
from model_registry.package.signature_schema import parse_signature
from model_registry.stores import parallel_transfer, resolve_index
from model_registry.stores.base import Store
from model_registry.untrusted_input.files import open_regular

MODEL = "model.onnx"
SIGNATURE = "signature.json"
GOLDEN = "golden.jsonl"
MODELS = (MODEL, "saved_model", "repository", "remote.json")
"""Names of the model in a package: for ONNX Runtime, for TensorFlow Serving, for Open Inference servers, and for a server that
already has the model."""


@dataclass(frozen=True, slots=True)
class Package:
    """A folder with the files of one model version, after `read` has checked the files.

    Attributes:
        folder: The folder.
        signature: The parsed signature; None if the package has no signature.json.
        golden: The golden examples; empty if the package has none.
        model_path: The path of the model, a file or folder.
        name: The model's name in the manifest; empty for a folder that was not pulled.
        version: The version in the manifest; empty for a folder that was not pulled.
        digest: The digest of the manifest, which identifies the version; empty for a folder that was not pulled.
        annotations: The annotations of the manifest; empty for a folder that was not pulled.
    """

    folder: Path
    signature: Signature | None
    golden: tuple[GoldenExample, ...]
    model_path: Path
    name: str = ""
    version: str = ""
    digest: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)


def read(folder: Path, signature: Signature | None = None, **manifest_fields: Any) -> Package:
    """Check the folder of a package and read its signature and golden examples; the model itself is not opened.

    Args:
        folder: The folder.
        signature: The signature to use instead of signature.json; None reads the file.
        manifest_fields: The `name`, `version`, `digest` and `annotations` of the result, if they are known.

    Raises:
        SignatureError: signature.json is invalid.
        Refused: The folder has no model, or golden.jsonl is invalid or does not fit the signature.
    """
    model_path = find_model(folder)
    signature = signature or read_signature(folder)
    with atomic_files.report_os_errors(f"the package {folder}"):
        lines = _read_up_to(folder / GOLDEN, golden_examples.MAX_BYTES)
    return Package(folder, signature, golden_examples.parse_lines(lines or b"", signature), model_path, **manifest_fields)


def find_model(folder: Path) -> Path:
    """Return the path of the model, a file or folder, in a package's folder. Raises Refused if there is no model."""
    path = next((folder / name for name in MODELS if (folder / name).exists()), None)
    if path is None and not folder.is_dir():
        raise Refused(f"there is no folder {folder}", suggestions.file_question(folder) or "check the path")
    if path is None:
        hint = "export the model as ONNX into that file, or see deploy/model-servers.md for models on servers"
        raise Refused(f"{folder} has no {MODEL}", hint)
    return path


@contextlib.contextmanager
def suggest_folder(folder_or_version: str) -> Iterator[None]:
    """Add `did you mean 'FOLDER'?` to the hint of an error in the `with` block, if a folder with a similar name exists.

    Args:
        folder_or_version: The argument of a command: a package folder, or a version in a registry. There is no folder with this
            name, so the `with` block looks up a version. The user may have misspelt the name of a folder.

    Raises:
        BadReference: The argument is not a valid reference (raised in the `with` block).
        NotFound: There is no such version (raised in the `with` block).
    """
    try:
        yield
    except (BadReference, NotFound) as error:
        error.hint = f"{suggestions.folder_question(Path(folder_or_version))} {error.hint}".strip()
        raise


def read_signature(folder: Path) -> Signature | None:
    """Parse the signature.json of a package's folder; return None if there is no such file. Raises SignatureError."""
    with atomic_files.report_os_errors(f"the package {folder}"):
        data = _read_up_to(folder / SIGNATURE, signature_schema.MAX_BYTES)
    return None if data is None else parse_signature(data)


def signature_of(store: Store, version: VersionManifest) -> Signature | None:
    """Read and parse the signature of a version in a store. Raises SignatureError.

    Returns None if the version has no signature.json. Also returns None for a container image, because the image's files are in
    the layers.
    """
    blob = next((file.content for file in version.files if file.path == SIGNATURE), None)
    return parse_signature(b"".join(store.blob(blob))) if blob else None


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
    """Store a package as a version, and return the descriptor of its manifest.

    The tag is written last, so that it never names an incomplete version. Equal content gives an equal digest in every
    repository; the modification times of the files do not matter.

    Args:
        store: The repository.
        source: The package, or its folder, which is then read and checked. Files whose names begin with a dot are left out.
        name: The model's name for the manifest.
        version: The version, which is the tag.
        created: The creation time for the manifest; None records no time.
        annotations: Additional annotations of the manifest.
        more: The content of additional files that are not in the folder, by path.
        base: The base image on which the version is built as a container image; None stores an artifact.
        only: The paths of the files in the folder to store; None stores all.

    Raises:
        BadReference: The version is no valid tag.
        Refused: `read` rejects the folder, the version exists with other content, or a channel has this name.
    """
    tags.check_version(version)
    folder = (source if isinstance(source, Package) else read(source)).folder
    at = created.astimezone(UTC).isoformat(timespec="seconds") if created else None
    with atomic_files.report_os_errors(f"the package {folder}"), contextlib.ExitStack() as stack:
        files = build_artifact.hash_files(folder, more or {}, only)
        if base is None:
            return _send(store, version, build_artifact.build_artifact(name, version, at, files, annotations or {}))
        stated = manifest.version_annotations(name, version, at, annotations or {})
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="model-registry-"))
        return _send(store, version, build.plan(base, files, stated, Path(scratch) / "layer"))


def content(version_manifest: VersionManifest) -> list[Descriptor]:
    """Return the descriptors of the blobs that hold a version's files.

    For a container image, these blobs are the layers that may contribute to the package.
    """
    return [file.content for file in version_manifest.files] or unpack.needed(version_manifest.layers)


def write(
    store: Store,
    version_manifest: VersionManifest,
    folder: Path,
    *,
    max_bytes: int = manifest.MAX_SIZE,
    layers: Path | None = None,
) -> None:
    """Write a version's files into an empty folder and check every byte.

    Args:
        store: The repository.
        version_manifest: The version.
        folder: The empty folder.
        max_bytes: The largest size of a version.
        layers: A folder in which the layers of an image are stored too; None stores only the files.

    Raises:
        NotFound: Content is missing.
        Unreachable: The store or the disk fails.
        Corrupt: Content does not have its digest.
        Refused: The version is larger than `max_bytes`, or is an image without a package.
    """
    total = sum(blob.size for blob in content(version_manifest))
    if total > max_bytes:
        raise Refused(f"the version has {total} bytes; the limit is {max_bytes} bytes", "raise model.max_bytes")

    def save(layer: Descriptor) -> Iterator[bytes]:
        with (cast(Path, layers) / digests.hex_digits(layer.digest)).open("wb") as stream:
            for chunk in store.blob(layer):
                stream.write(chunk)
                yield chunk

    if version_manifest.layers:
        unpack.unpack(save if layers else store.blob, version_manifest, folder, UnpackLimits(), max_bytes)
        return
    for file in version_manifest.files:
        (folder / file.path).parent.mkdir(parents=True, exist_ok=True)
    parallel_transfer.download(store, [(file.content, folder / file.path) for file in version_manifest.files])


def pull(store: Store, digest: str, folder: Path, *, version: str = "") -> Package:
    """Write a version's files into a new or empty folder, check every byte, and return the package.

    The files get their final names only after all of them are complete and checked.

    Args:
        store: The repository.
        digest: The digest of the version's manifest.
        folder: The folder.
        version: The version to assume if the manifest does not state one, see `resolve_index.describe_version`.

    Raises:
        NotFound: The version or its content is missing.
        Corrupt: Content does not have its digest.
        Refused: The folder is not empty, or `read` rejects the version's files.
        Unreachable: The store or the disk fails.
    """
    version_manifest = resolve_index.describe_version(store, digest, version=version)
    with atomic_files.report_os_errors(f"the folder {folder}"):
        is_new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise Refused(f"{folder} is not empty", "choose a new folder")
        part = Path(tempfile.mkdtemp(prefix=".", suffix=".part", dir=folder))  # inside, because the folder may be a mount
        try:
            write(store, version_manifest, part)
            checked = read(
                part,
                name=version_manifest.name,
                version=version_manifest.version,
                digest=digest,
                annotations=version_manifest.annotations,
            )
            for path in sorted(part.iterdir(), key=lambda path: path.name == MODEL):
                path.rename(folder / path.name)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            if is_new:
                folder.rmdir()
            raise
        part.rmdir()
        atomic_files.sync_directory(folder)
    return replace(checked, folder=folder, model_path=folder / checked.model_path.name)


def verify(folder: Path, store: Store, version_manifest: VersionManifest, max_bytes: int) -> None:
    """Verify that a pulled folder has exactly the files of a version, by hashing every file again.

    Args:
        folder: The folder.
        store: The store with the layers of an image. The layers are unpacked to list the image's files. Unused for other
            versions.
        version_manifest: The manifest of the version.
        max_bytes: The largest size of the files in an image.

    Raises:
        Corrupt: A file is missing, was changed or does not belong to the version, or a layer is damaged.
        NotFound: A layer is missing in the store.
    """
    expected = version_manifest.files or unpack.unpack(store.blob, version_manifest, None, UnpackLimits(), max_bytes)
    with atomic_files.report_os_errors(f"the folder {folder}"):
        contents = {file.path: file.content for file in expected}
        if difference := set(build_artifact.walk(folder)) ^ contents.keys():
            raise Corrupt(f"{folder}: {sorted(difference)[0]!r} is missing, or is not a file of this version")
        for path, stated in contents.items():
            with open_regular(folder / path) as stream:
                digests.check_stream(stream, stated.digest, stated.size, f"{folder / path}")


def _send(store: Store, version: str, artifact: Artifact) -> Descriptor:
    """Push the blobs, then the manifest, then the tag; wait until the store lists the tag."""
    target = manifest.describe_manifest(artifact.manifest)
    store.push_blob(manifest.parse(artifact.manifest).config, io.BytesIO(artifact.config))  # creates the repository
    _is_stored(store, version, target)  # a conflict is found before anything large is sent
    parallel_transfer.upload(store, artifact.blobs)
    store.push_manifest(artifact.manifest)
    pauses = store.visibility_attempts()
    written = False
    while not _is_stored(store, version, target, written=written):
        try:
            store.move_tags({version: target}, expect={version: None, tags.history_tag(version, 1): None})
        except Conflict:
            next(pauses, None)  # another writer created the tag, with this content or another
        written = True
    for _ in store.visibility_attempts():
        if version in store.tags():  # a promotion that follows reads this list
            break
    return target


def _is_stored(store: Store, version: str, target: Descriptor, *, written: bool = False) -> bool:
    """Return whether the tag `version` names the manifest `target`; False if there is no such tag.

    `written` states whether the caller wrote the tag a moment ago. If so, the tag is resolved even if the store's list of tags
    does not show it yet.

    Raises:
        Refused: The tag names other content, or is a channel.
    """
    listed = store.tags()
    if version == tags.DEFAULT_CHANNEL or version in tags.channels(listed):
        hint = "push a version such as 1.0.0, then promote it to the channel"
        raise Refused(f"{version!r} is a channel, which only `model-registry promote` moves", hint)
    if version not in listed and not written:
        return False
    try:
        stored_digest = store.resolve(version).digest
    except NotFound:
        return False
    if stored_digest != target.digest:
        message = (
            f"version {version} of {store.repository} exists with other content: its digest is {stored_digest}, but "
            f"the digest of this content is {target.digest}"
        )
        raise Refused(message, "a version never changes; push this content as a new version")
    return True


def _read_up_to(path: Path, limit: int) -> bytes | None:
    """Return the content of a file, cut to `limit` + 1 bytes so that the parser rejects a larger file; None without a file."""
    if not path.is_file():
        return None
    with open_regular(path) as stream:
        return stream.read(limit + 1)
