"""Manifests: the bytes that say what a version consists of. Parsed, never trusted; written so that the same content gives
the same bytes.

What is written is a ModelPack artifact (github.com/modelpack/model-spec v0.0.7): raw layers, one file each. Its config
carries the ModelPack document inside an ordinary OCI image config, because tools that know images only (`skopeo inspect`)
refuse every other config type; both are read, and so are plain artifacts of other tools and container images.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, cast

import msgspec

from model_registry.atomic_files import check_paths
from model_registry.errors import BadReference, Corrupt
from model_registry.oci import digests
from model_registry.untrusted_input import documents

MAX_BYTES = 4 << 20  # what registries accept at most (OCI distribution-spec, "Pushing manifests")
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
_HINT = "push it with model-registry push DIR REF"
_MODEL_FILE = "model.onnx"
_LAYER = re.compile(  # a tar archive of a container image; foreign and nondistributable layers are kept elsewhere
    r"application/vnd\.(oci\.image\.layer\.v1\.tar(\+(?P<oci>gzip|zstd))?|docker\.image\.rootfs\.diff\.tar(\.(?P<docker>gzip|zstd))?)"
)


class Platform(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a manifest of an index is made for."""

    os: str = ""
    architecture: str = ""
    variant: str | None = None


class Descriptor(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What some content is, its digest and its size in bytes."""

    media_type: str
    digest: str
    size: int
    artifact_type: str | None = None
    platform: Platform | None = None
    annotations: dict[str, str] = {}


class Manifest(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    schema_version: int
    media_type: str = ""
    artifact_type: str | None = None
    config: Descriptor
    layers: tuple[Descriptor, ...]
    subject: Descriptor | None = None
    annotations: dict[str, str] = {}


class ImageIndex(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    schema_version: int
    media_type: str = ""
    artifact_type: str | None = None
    manifests: tuple[Descriptor, ...]
    annotations: dict[str, str] = {}


class DocumentKind(msgspec.Struct, frozen=True, rename="camel"):
    """What a document says that it is."""

    media_type: str = ""
    artifact_type: str | None = None


@dataclass(frozen=True, slots=True)
class VersionFile:
    """One file of a version: where it goes in the folder, and its content."""

    path: str
    content: Descriptor


@dataclass(frozen=True, slots=True)
class VersionManifest:
    """What the manifest of a model version says. Either `files` or, of a container image, `layers` (lowest first) is empty.

    Name and version are empty where a tool made the manifest that does not state them.
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
        """All content beside the manifest."""
        return (self.config, *(file.content for file in self.files), *self.layers)


def describe_content(media_type: str, data: bytes) -> Descriptor:
    return Descriptor(media_type=media_type, digest=digests.from_bytes(data), size=len(data))


EMPTY = b"{}"  # OCI image-spec, "Guidance for an empty descriptor"
_Parsed = TypeVar("_Parsed")
_Told = TypeVar("_Told", Manifest, ImageIndex)


def decode(data: bytes, into: type[_Parsed], what: str) -> _Parsed:
    """JSON that somebody stored, as a type. Raises Corrupt."""
    try:
        return documents.decode(data, into)
    except documents.UnreadableDocument as error:
        raise Corrupt(f"{what} is no valid document: {error}") from None


def encode(document: object) -> bytes:
    """The one way to write a document: no spaces, annotations in order."""
    return msgspec.json.encode(document, order="deterministic")


def describe_manifest(data: bytes) -> Descriptor:
    """The descriptor of a manifest's or an index's bytes. Raises Corrupt."""
    found: ImageIndex | Manifest = parse_index(data) if is_index(data) else parse(data)
    media_type = found.media_type or MANIFEST_TYPE
    return Descriptor(media_type=media_type, digest=digests.from_bytes(data), size=len(data), artifact_type=found.artifact_type)


def is_index(data: bytes) -> bool:
    """Whether a document says that it is an index. Raises Corrupt for what is no JSON object."""
    return decode(data, DocumentKind, "the manifest").media_type in (INDEX_TYPE, DOCKER_INDEX_TYPE)


def contents(data: bytes) -> tuple[Descriptor, ...]:
    """What a manifest (config, layers) or an index (manifests) consists of. Raises Corrupt."""
    if is_index(data):
        return parse_index(data).manifests
    found = parse(data)
    return (found.config, *found.layers)


def parse_index(data: bytes) -> ImageIndex:
    """Any OCI image index, its digests and sizes checked. Raises Corrupt."""
    index = _document(data, ImageIndex, "index", (INDEX_TYPE, DOCKER_INDEX_TYPE))
    for descriptor in index.manifests:
        check(descriptor)
    return index


def parse(data: bytes) -> Manifest:
    """Any OCI image manifest, its digests and sizes checked. Raises Corrupt."""
    manifest = _document(data, Manifest, "manifest", ("", MANIFEST_TYPE, DOCKER_MANIFEST_TYPE))
    for descriptor in (manifest.config, *manifest.layers, *([manifest.subject] if manifest.subject else [])):
        check(descriptor)
    return manifest


def _document(data: bytes, into: type[_Told], name: str, types: Sequence[str]) -> _Told:
    if len(data) > MAX_BYTES:
        raise Corrupt(f"the {name} has {len(data)} bytes; at most {MAX_BYTES} are read")
    found = decode(data, into, f"the {name}")
    if found.schema_version != 2 or found.media_type not in types:
        raise Corrupt(f"schema {found.schema_version}, media type {found.media_type!r} is no OCI image {name}")
    return found


def check(descriptor: Descriptor) -> Descriptor:
    """A descriptor whose digest and size may be used. Raises Corrupt."""
    digests.hex_digits(descriptor.digest)
    if not 0 <= descriptor.size <= MAX_SIZE:
        raise Corrupt(f"{descriptor.digest} is declared with {descriptor.size} bytes")
    return descriptor


def parse_version(data: bytes) -> VersionManifest:
    """The manifest of a model version. Raises Corrupt: no model, or files that must not be written anywhere."""
    manifest = parse(data)
    notes = manifest.annotations
    files: tuple[VersionFile, ...] = ()
    layers: tuple[Descriptor, ...] = ()
    if manifest.artifact_type == MODEL_TYPE and manifest.config.media_type in (IMAGE_CONFIG_TYPE, MODEL_CONFIG_TYPE):
        for key in (TITLE, VERSION):
            if not notes.get(key):
                raise Corrupt(f"the manifest has no annotation {key}", _HINT)
        files = _files(manifest.layers, FILEPATH)
        if odd := next((file for file in files if not file.content.media_type.endswith(".raw")), None):
            raise Corrupt(f"the layer of {odd.path!r} is {odd.content.media_type}; only raw layers are read")
    elif any(layer.annotations.get(TITLE) == _MODEL_FILE for layer in manifest.layers):
        files = _files(manifest.layers, TITLE)
    elif not manifest.artifact_type and manifest.config.media_type in (IMAGE_CONFIG_TYPE, DOCKER_CONFIG_TYPE):
        layers = manifest.layers
        for layer in layers:
            compression(layer)
    else:
        raise Corrupt(f"an artifact of type {manifest.artifact_type or manifest.config.media_type} is no model version", _HINT)
    return VersionManifest(
        notes.get(TITLE, ""), notes.get(VERSION, ""), notes.get(CREATED), files, manifest.config, layers, notes
    )


def compression(layer: Descriptor) -> Literal["", "gzip", "zstd"]:
    """How a layer of a container image is packed. Raises Corrupt: it is none, or is kept elsewhere."""
    if (match := _LAYER.fullmatch(layer.media_type)) is None:
        raise Corrupt(f"a layer of type {layer.media_type} is not read", "layers are tar archives, plain or with gzip or zstd")
    return cast(Literal["", "gzip", "zstd"], match["oci"] or match["docker"] or "")


def _files(layers: tuple[Descriptor, ...], key: str) -> tuple[VersionFile, ...]:
    if not 1 <= len(layers) <= MAX_FILES:
        raise Corrupt(f"{len(layers)} files; a version has 1 to {MAX_FILES}")
    files = tuple(VersionFile(layer.annotations.get(key, ""), layer) for layer in layers)
    if odd := next((file for file in files if UNPACK in file.content.annotations), None):
        raise Corrupt(f"{odd.path!r} is a folder in one archive", "push its files one by one")
    check_paths(file.path for file in files)
    return files


def build_config(name: str, version: str, created: str | None, diff_ids: Iterable[str]) -> bytes:
    """The config of a version: a ModelPack document that is an OCI image config as well."""
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
    """The annotations of a version. Raises BadReference: one of `more` is not free to be chosen."""
    fixed = {TITLE: name, VERSION: version} | ({CREATED: created} if created else {})
    if taken := sorted(more.keys() & {TITLE, VERSION, CREATED}):
        raise BadReference(
            f"the annotation {taken[0]} cannot be chosen", "it is made of the reference, or of SOURCE_DATE_EPOCH"
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
    """The manifest of a version, with `more` annotations; the same arguments always give the same bytes."""
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
    made = Manifest(
        schema_version=2, media_type=MANIFEST_TYPE, artifact_type=artifact_type, config=config, layers=layers,
        subject=subject, annotations=annotations,
    )  # fmt: skip
    return encode(made)
