"""Manifests: the bytes that say what a version consists of. Parsed, never trusted; written so that the same content gives
the same bytes.

A model version is a ModelPack artifact (github.com/modelpack/model-spec v0.0.7): raw layers, one file each. Its config
carries the ModelPack document inside an ordinary OCI image config, because tools that know images only (`skopeo inspect`)
refuse every other config type; both config types are read.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, TypeVar

import msgspec

from model_registry import digest
from model_registry.errors import Corrupt

MAX_BYTES = 4 << 20  # what registries accept at most (OCI distribution-spec, "Pushing manifests")
MAX_FILES = 1000
MAX_SIZE = 1 << 50

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
MODEL_TYPE = "application/vnd.cncf.model.manifest.v1+json"
IMAGE_CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
MODEL_CONFIG_TYPE = "application/vnd.cncf.model.config.v1+json"
EMPTY_TYPE = "application/vnd.oci.empty.v1+json"

FILEPATH = "org.cncf.model.filepath"
TITLE = "org.opencontainers.image.title"
VERSION = "org.opencontainers.image.version"
CREATED = "org.opencontainers.image.created"


class Descriptor(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What some content is, its digest and its size in bytes."""

    media_type: str
    digest: str
    size: int
    artifact_type: str | None = None
    annotations: dict[str, str] = {}

    def bare(self) -> "Descriptor":
        """The same content without annotations."""
        return msgspec.structs.replace(self, annotations={})


class Manifest(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An OCI image manifest."""

    schema_version: int
    media_type: str = ""
    artifact_type: str | None = None
    config: Descriptor
    layers: tuple[Descriptor, ...]
    subject: Descriptor | None = None
    annotations: dict[str, str] = {}


class Index(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An OCI image index: a list of manifests."""

    schema_version: int
    media_type: str = ""
    artifact_type: str | None = None
    manifests: tuple[Descriptor, ...]
    annotations: dict[str, str] = {}


class _Kind(msgspec.Struct, frozen=True, rename="camel"):
    media_type: str = ""


@dataclass(frozen=True, slots=True)
class File:
    """One file of a version: where it goes in the folder, and its content."""

    path: str
    content: Descriptor


@dataclass(frozen=True, slots=True)
class Version:
    """What the manifest of a model version says."""

    name: str
    version: str
    created: str | None
    files: tuple[File, ...]
    config: Descriptor

    @property
    def blobs(self) -> tuple[Descriptor, ...]:
        """All content beside the manifest."""
        return (self.config, *(file.content for file in self.files))


_Parsed = TypeVar("_Parsed")


def decode(data: bytes, into: type[_Parsed], what: str) -> _Parsed:
    """JSON that somebody stored, as a type. Raises Corrupt."""
    try:
        return msgspec.json.decode(data, type=into)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(f"{what} is no valid document: {error}") from None


def encode(document: object) -> bytes:
    """The one way to write a document: no spaces, annotations in order."""
    return msgspec.json.encode(document, order="deterministic")


def describe(data: bytes) -> Descriptor:
    """The descriptor of a manifest's or an index's bytes. Raises Corrupt."""
    found, media_type = (parse_index(data), INDEX_TYPE) if is_index(data) else (parse(data), MANIFEST_TYPE)
    return Descriptor(media_type=media_type, digest=digest.of_bytes(data), size=len(data), artifact_type=found.artifact_type)


def is_index(data: bytes) -> bool:
    """Whether a document says that it is an index. Raises Corrupt for what is no JSON object."""
    return decode(data, _Kind, "the manifest").media_type == INDEX_TYPE


def named(data: bytes) -> tuple[Descriptor, ...]:
    """What a manifest (config, layers) or an index (manifests) consists of. Raises Corrupt."""
    if is_index(data):
        return parse_index(data).manifests
    found = parse(data)
    return (found.config, *found.layers)


def parse_index(data: bytes) -> Index:
    """Any OCI image index, its digests and sizes checked. Raises Corrupt."""
    if len(data) > MAX_BYTES:
        raise Corrupt(f"an index of {len(data)} bytes; at most {MAX_BYTES} are read")
    index = decode(data, Index, "the index")
    if index.schema_version != 2 or index.media_type != INDEX_TYPE:
        raise Corrupt(f"schema {index.schema_version}, media type {index.media_type!r} is no OCI image index")
    for descriptor in index.manifests:
        check(descriptor)
    return index


def parse(data: bytes) -> Manifest:
    """Any OCI image manifest, its digests and sizes checked. Raises Corrupt."""
    if len(data) > MAX_BYTES:
        raise Corrupt(f"a manifest of {len(data)} bytes; at most {MAX_BYTES} are read")
    manifest = decode(data, Manifest, "the manifest")
    if manifest.schema_version != 2 or manifest.media_type not in ("", MANIFEST_TYPE):
        raise Corrupt(f"schema {manifest.schema_version}, media type {manifest.media_type!r} is no OCI image manifest")
    for descriptor in (manifest.config, *manifest.layers, *([manifest.subject] if manifest.subject else [])):
        check(descriptor)
    return manifest


def check(descriptor: Descriptor) -> Descriptor:
    """A descriptor whose digest and size may be used. Raises Corrupt."""
    digest.hex_of(descriptor.digest)
    if not 0 <= descriptor.size <= MAX_SIZE:
        raise Corrupt(f"{descriptor.digest} is declared with {descriptor.size} bytes")
    return descriptor


def parse_version(data: bytes) -> Version:
    """The manifest of a model version. Raises Corrupt: no model, nameless, or files that must not be written anywhere."""
    manifest = parse(data)
    if manifest.artifact_type != MODEL_TYPE or manifest.config.media_type not in (IMAGE_CONFIG_TYPE, MODEL_CONFIG_TYPE):
        kind = manifest.artifact_type or manifest.config.media_type
        raise Corrupt(f"an artifact of type {kind} is no model version", "push it with model-registry push DIR REF")
    for key in (TITLE, VERSION):
        if not manifest.annotations.get(key):
            raise Corrupt(f"the manifest has no annotation {key}", "push it with model-registry push DIR REF")
    notes = manifest.annotations
    return Version(notes[TITLE], notes[VERSION], notes.get(CREATED), _files(manifest.layers), manifest.config)


def _files(layers: tuple[Descriptor, ...]) -> tuple[File, ...]:
    if not 1 <= len(layers) <= MAX_FILES:
        raise Corrupt(f"{len(layers)} files; a version has 1 to {MAX_FILES}")
    files = tuple(File(layer.annotations.get(FILEPATH, ""), layer) for layer in layers)
    for file in files:
        if not file.content.media_type.endswith(".raw"):
            raise Corrupt(f"the layer of {file.path!r} is {file.content.media_type}; only raw layers are read")
    check_paths(file.path for file in files)
    return files


def check_paths(paths: Iterable[str]) -> None:
    """Relative paths that stay inside the folder they are written to, on every file system. Raises Corrupt.

    Two paths that differ in case only, or of which one is a folder of the other, cannot both be written everywhere.
    """
    seen: set[str] = set()
    folders: set[str] = set()
    for path in paths:
        if not is_confined(path):
            raise Corrupt(f"the file path {path!r:.200} leads out of the folder, or is no plain relative path")
        folded = path.casefold()
        parents = {str(parent) for parent in PurePosixPath(folded).parents if str(parent) != "."}
        if folded in seen or folded in folders or parents & seen:
            raise Corrupt(f"the file path {path!r:.200} stands in the way of another one")
        seen.add(folded)
        folders |= parents


def is_confined(path: str) -> bool:
    """Whether a path is relative, without `.`, `..`, backslash, colon and control characters, its names at most 255 bytes."""
    if not path or not path.isprintable() or {"\\", ":"} & set(path) or len(path.encode("utf-8", "replace")) > 1024:
        return False
    return all(part not in ("", ".", "..") and len(part.encode("utf-8", "replace")) <= 255 for part in path.split("/"))


def build_config(name: str, version: str, created: str | None, digests: Iterable[str]) -> bytes:
    """The config of a version: a ModelPack document that is an OCI image config as well."""
    layers = list(digests)
    described = {"name": name, "version": version} | ({"createdAt": created} if created else {})
    document: dict[str, Any] = {
        "architecture": "unknown",  # a model runs anywhere; the image config requires both keys
        "os": "unknown",
        "config": {"format": "onnx", "Labels": {TITLE: name, VERSION: version}},
        "rootfs": {"type": "layers", "diff_ids": layers},
        "descriptor": described,
        "modelfs": {"type": "layers", "diffIds": layers},
    }
    return encode(document | ({"created": created} if created else {}))


def build_version(name: str, version: str, created: str | None, files: Iterable[File], config: bytes) -> bytes:
    """The manifest of a version; the same arguments always give the same bytes."""
    layers = tuple(
        msgspec.structs.replace(file.content, annotations={FILEPATH: file.path, TITLE: file.path})
        for file in sorted(files, key=lambda file: file.path)
    )
    annotations = {TITLE: name, VERSION: version} | ({CREATED: created} if created else {})
    described = Descriptor(media_type=IMAGE_CONFIG_TYPE, digest=digest.of_bytes(config), size=len(config))
    return build(MODEL_TYPE, described, layers, annotations)


def build(
    artifact_type: str,
    config: Descriptor,
    layers: tuple[Descriptor, ...],
    annotations: dict[str, str],
    subject: Descriptor | None = None,
) -> bytes:
    """Any artifact's manifest."""
    return encode(
        Manifest(
            schema_version=2,
            media_type=MANIFEST_TYPE,
            artifact_type=artifact_type,
            config=config,
            layers=layers,
            subject=subject,
            annotations=annotations,
        )
    )
