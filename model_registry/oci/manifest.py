"""Parses and builds manifests, the documents that list the content of a version.

The parsed bytes are untrusted. A version may be a ModelPack artifact, an artifact of another tool with a file model.onnx, or a
container image. Equal content gives equal bytes when a manifest is built.
"""

# This package writes ModelPack artifacts (github.com/modelpack/model-spec v0.0.7) with one raw layer per file. The config is an
# OCI image config that also holds the keys of a ModelPack config, because tools that know only images (`skopeo inspect`) reject
# every other config type.

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, cast

import msgspec

from model_registry.atomic_files import check_paths
from model_registry.errors import BadReference, Corrupt
from model_registry.oci import digests
from model_registry.untrusted_input import json_documents

MAX_BYTES = 4 << 20  # of a manifest: the size that registries must accept (OCI distribution-spec, "Pushing manifests")
MAX_FILES = 1000
MAX_SIZE = 1 << 50

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
MODEL_TYPE = "application/vnd.cncf.model.manifest.v1+json"
IMAGE_CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
DOCKER_MANIFEST_TYPE = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_INDEX_TYPE = "application/vnd.docker.distribution.manifest.list.v2+json"
MODEL_CONFIG_TYPE = "application/vnd.cncf.model.config.v1+json"
DOCKER_CONFIG_TYPE = "application/vnd.docker.container.image.v1+json"
EMPTY_TYPE = "application/vnd.oci.empty.v1+json"

FILEPATH = "org.cncf.model.filepath"
TITLE = "org.opencontainers.image.title"
VERSION = "org.opencontainers.image.version"
CREATED = "org.opencontainers.image.created"
UNPACK = "io.deis.oras.content.unpack"
_HINT = "push the model with `model-registry push DIR REF`"
_MODEL_FILE = "model.onnx"
_LAYER = re.compile(  # a layer of a container image; foreign and nondistributable layers, stored elsewhere, do not match
    r"application/vnd\.(oci\.image\.layer\.v1\.tar(\+(?P<oci>gzip|zstd))?|docker\.image\.rootfs\.diff\.tar(\.(?P<docker>gzip|zstd))?)"
)


class Platform(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The operating system and CPU architecture that a manifest in an index is meant for."""

    os: str = ""
    architecture: str = ""
    variant: str | None = None


class Descriptor(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An OCI descriptor: the media type, digest and size (in bytes) of a manifest or blob."""

    media_type: str
    digest: str
    size: int
    artifact_type: str | None = None
    platform: Platform | None = None
    annotations: dict[str, str] = {}


class Manifest(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The JSON document of an OCI or Docker image manifest."""

    schema_version: int
    media_type: str = ""
    artifact_type: str | None = None
    config: Descriptor
    layers: tuple[Descriptor, ...]
    subject: Descriptor | None = None
    annotations: dict[str, str] = {}


class ImageIndex(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The JSON document of an OCI image index or a Docker manifest list."""

    schema_version: int
    media_type: str = ""
    artifact_type: str | None = None
    manifests: tuple[Descriptor, ...]
    annotations: dict[str, str] = {}


class DocumentKind(msgspec.Struct, frozen=True, rename="camel"):
    """The media type and artifact type that a manifest or index declares."""

    media_type: str = ""
    artifact_type: str | None = None


@dataclass(frozen=True, slots=True)
class VersionFile:
    """One file of a version: its path in the version's folder and the descriptor of its content."""

    path: str
    content: Descriptor


@dataclass(frozen=True, slots=True)
class VersionManifest:
    """The parsed manifest of a model version.

    Attributes:
        name: The model's name; empty if the manifest states none, as manifests of other tools may.
        version: The version; empty if the manifest does not state one.
        created: The creation time in the manifest; None if there is none.
        files: The files; empty for a container image, whose files are in its layers.
        layers: The layers of a container image, lowest first; empty for other versions.
    """

    name: str
    version: str
    created: str | None
    files: tuple[VersionFile, ...]
    config: Descriptor
    layers: tuple[Descriptor, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def blobs(self) -> tuple[Descriptor, ...]:
        """The descriptors of all content of the version except the manifest."""
        return (self.config, *(file.content for file in self.files), *self.layers)


def describe_content(media_type: str, data: bytes) -> Descriptor:
    """Return the descriptor of some bytes."""
    return Descriptor(media_type=media_type, digest=digests.from_bytes(data), size=len(data))


EMPTY = b"{}"  # OCI image-spec, "Guidance for an empty descriptor"
_Parsed = TypeVar("_Parsed")
_Document = TypeVar("_Document", Manifest, ImageIndex)


def decode(data: bytes, into: type[_Parsed], description: str) -> _Parsed:
    """Decode untrusted JSON as the type `into`. Raises Corrupt with a message that starts with `description`."""
    try:
        return json_documents.decode(data, into)
    except json_documents.UnreadableDocument as error:
        raise Corrupt(f"{description} is not a valid document: {error}") from None


def encode(document: object) -> bytes:
    """Encode a document as JSON without spaces, with the keys of its mappings sorted."""
    return msgspec.json.encode(document, order="deterministic")


def describe_manifest(data: bytes) -> Descriptor:
    """Return the descriptor of a manifest or index with these bytes. Raises Corrupt if the bytes are neither."""
    parsed: ImageIndex | Manifest = parse_index(data) if is_index(data) else parse(data)
    media_type = parsed.media_type or MANIFEST_TYPE
    return Descriptor(
        media_type=media_type, digest=digests.from_bytes(data), size=len(data), artifact_type=parsed.artifact_type
    )


def is_index(data: bytes) -> bool:
    """Return whether a document has the media type of an index. Raises Corrupt if the document is not a JSON object."""
    return decode(data, DocumentKind, "the manifest").media_type in (INDEX_TYPE, DOCKER_INDEX_TYPE)


def contents(data: bytes) -> tuple[Descriptor, ...]:
    """Return the descriptors in a manifest (config and layers) or in an index (manifests). Raises Corrupt."""
    if is_index(data):
        return parse_index(data).manifests
    parsed = parse(data)
    return (parsed.config, *parsed.layers)


def parse_index(data: bytes) -> ImageIndex:
    """Parse an OCI image index and check its digests and sizes. Raises Corrupt."""
    index = _document(data, ImageIndex, "index", (INDEX_TYPE, DOCKER_INDEX_TYPE))
    for descriptor in index.manifests:
        check(descriptor)
    return index


def parse(data: bytes) -> Manifest:
    """Parse an OCI image manifest and check its digests and sizes. Raises Corrupt."""
    manifest = _document(data, Manifest, "manifest", ("", MANIFEST_TYPE, DOCKER_MANIFEST_TYPE))
    for descriptor in (manifest.config, *manifest.layers, *([manifest.subject] if manifest.subject else [])):
        check(descriptor)
    return manifest


def _document(data: bytes, into: type[_Document], name: str, types: Sequence[str]) -> _Document:
    if len(data) > MAX_BYTES:
        raise Corrupt(f"the {name} has {len(data)} bytes; the limit is {MAX_BYTES} bytes")
    document = decode(data, into, f"the {name}")
    if document.schema_version != 2 or document.media_type not in types:
        raise Corrupt(
            f"the document is not an OCI image {name}: it has schema version {document.schema_version} "
            f"and media type {document.media_type!r}"
        )
    return document


def check(descriptor: Descriptor) -> Descriptor:
    """Return a descriptor if its digest and size are valid. Raises Corrupt otherwise."""
    digests.hex_digits(descriptor.digest)
    if not 0 <= descriptor.size <= MAX_SIZE:
        raise Corrupt(f"the declared size of {descriptor.digest} is {descriptor.size} bytes; it must be from 0 to {MAX_SIZE}")
    return descriptor


def parse_version(data: bytes) -> VersionManifest:
    """Parse the manifest of a model version. Raises Corrupt if it describes no model version or has unsafe file paths."""
    manifest = parse(data)
    annotations = manifest.annotations
    files: tuple[VersionFile, ...] = ()
    layers: tuple[Descriptor, ...] = ()
    if manifest.artifact_type == MODEL_TYPE and manifest.config.media_type in (IMAGE_CONFIG_TYPE, MODEL_CONFIG_TYPE):
        for key in (TITLE, VERSION):
            if not annotations.get(key):
                raise Corrupt(f"the manifest has no annotation {key}", _HINT)
        files = _files(manifest.layers, FILEPATH)
        if packed := next((file for file in files if not file.content.media_type.endswith(".raw")), None):
            raise Corrupt(f"the layer of {packed.path!r} has the type {packed.content.media_type}; only raw layers are read")
    elif any(layer.annotations.get(TITLE) == _MODEL_FILE for layer in manifest.layers):
        files = _files(manifest.layers, TITLE)
    elif not manifest.artifact_type and manifest.config.media_type in (IMAGE_CONFIG_TYPE, DOCKER_CONFIG_TYPE):
        layers = manifest.layers
        for layer in layers:
            compression(layer)
    else:
        raise Corrupt(
            f"an artifact of type {manifest.artifact_type or manifest.config.media_type} is not a model version", _HINT
        )
    return VersionManifest(
        annotations.get(TITLE, ""),
        annotations.get(VERSION, ""),
        annotations.get(CREATED),
        files,
        manifest.config,
        layers,
        annotations,
    )


def compression(layer: Descriptor) -> Literal["", "gzip", "zstd"]:
    """Return the compression of an image layer from its media type; an empty string for an uncompressed layer.

    Raises Corrupt for any other media type, such as the type of layers that are stored outside the registry.
    """
    if (match := _LAYER.fullmatch(layer.media_type)) is None:
        raise Corrupt(
            f"a layer has the type {layer.media_type}, which is not supported",
            "layers are tar archives, plain or with gzip or zstd",
        )
    return cast(Literal["", "gzip", "zstd"], match["oci"] or match["docker"] or "")


def _files(layers: tuple[Descriptor, ...], key: str) -> tuple[VersionFile, ...]:
    if not 1 <= len(layers) <= MAX_FILES:
        raise Corrupt(f"the manifest lists {len(layers)} files; a version has 1 to {MAX_FILES}")
    files = tuple(VersionFile(layer.annotations.get(key, ""), layer) for layer in layers)
    if archived := next((file for file in files if UNPACK in file.content.annotations), None):
        raise Corrupt(f"{archived.path!r} is a folder that was packed as one archive", "push its files one by one")
    check_paths(file.path for file in files)
    return files


def build_config(name: str, version: str, created: str | None, diff_ids: Iterable[str]) -> bytes:
    """Build the config of a version: a document that is valid both as a ModelPack config and as an OCI image config."""
    layers = list(diff_ids)
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


def version_annotations(name: str, version: str, created: str | None, more: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations of a version's manifest: name, version, creation time and `more`.

    Raises BadReference if `more` has one of the reserved keys.
    """
    fixed = {TITLE: name, VERSION: version} | ({CREATED: created} if created else {})
    if reserved := sorted(more.keys() & {TITLE, VERSION, CREATED}):
        raise BadReference(
            f"the annotation {reserved[0]} cannot be chosen", "it is set from the reference, or from SOURCE_DATE_EPOCH"
        )
    return {**more, **fixed}


def build_version(
    name: str,
    version: str,
    created: str | None,
    files: Iterable[VersionFile],
    config: bytes,
    more: Mapping[str, str] | None = None,
) -> bytes:
    """Build the manifest of a version; `more` are additional annotations. Equal arguments give equal bytes."""
    layers = tuple(
        msgspec.structs.replace(file.content, annotations={FILEPATH: file.path, TITLE: file.path})
        for file in sorted(files, key=lambda file: file.path)
    )
    return build(
        MODEL_TYPE, describe_content(IMAGE_CONFIG_TYPE, config), layers, version_annotations(name, version, created, more or {})
    )


def build(
    artifact_type: str | None,
    config: Descriptor,
    layers: tuple[Descriptor, ...],
    annotations: dict[str, str],
    subject: Descriptor | None = None,
) -> bytes:
    """Build the bytes of an OCI manifest. Equal arguments give equal bytes."""
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
