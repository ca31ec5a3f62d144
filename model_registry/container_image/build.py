"""Builds container images that contain a package under /models: the layers of a base image and one more layer with the files.

The added layer has the same bytes for the same files, and hides the content of the base image under /models. Format: OCI
image-spec, layer.md and config.md.
"""

# The entries of the layer are sorted and have no times or owners. An annotation states that the layer hides the lower ones, so
# that a reader of the package need not read them.

import gzip
import hashlib
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

import msgspec

from model_registry.container_image.layers import ChunkReader
from model_registry.container_image.unpack import OPAQUE, ROOT, WHOLE
from model_registry.errors import Corrupt, Refused
from model_registry.oci import digests, manifest
from model_registry.oci.build_artifact import Artifact, OpenContent, file_opener
from model_registry.oci.manifest import Descriptor, VersionFile
from model_registry.stores import resolve_index
from model_registry.stores.base import Store

LEVEL = 1  # of gzip: weights hardly shrink, and a higher level takes four times as long
_LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"


@dataclass(frozen=True, slots=True)
class BaseImage:
    """The image on which to build: its config, its layers, and the store that holds them. By default the image is empty."""

    store: Store | None = None
    layers: tuple[Descriptor, ...] = ()
    config: Mapping[str, Any] = field(default_factory=lambda: {"architecture": "amd64", "os": "linux"})


def open_base(store: Store, digest: str) -> BaseImage:
    """Open the image with this digest.

    Raises:
        Refused: The digest names no image, or an index from which `select_manifest` selects none.
        NotFound, Corrupt, Unreachable: Errors of the store.
    """
    parsed = manifest.parse(resolve_index.select_manifest(store, digest))
    if parsed.artifact_type or parsed.config.media_type not in (manifest.IMAGE_CONFIG_TYPE, manifest.DOCKER_CONFIG_TYPE):
        raise Refused(
            f"{digest} of {store.repository} is not a container image",
            "--image takes a container image to build on, or scratch",
        )
    for layer in parsed.layers:
        manifest.compression(layer)
    if parsed.config.size > manifest.MAX_BYTES:
        raise Corrupt(f"the image config has {parsed.config.size} bytes; the limit is {manifest.MAX_BYTES} bytes")
    config = manifest.decode(b"".join(store.blob(parsed.config)), dict[str, Any], f"the image config {parsed.config.digest}")
    rootfs = config.get("rootfs")
    if not isinstance(rootfs, dict) or not isinstance(rootfs.get("diff_ids"), list):
        raise Corrupt(f"the image config {parsed.config.digest} names no layers", "choose another base image")
    return BaseImage(store, tuple(map(_as_oci, parsed.layers)), config)


def plan(
    base: BaseImage, files: list[tuple[VersionFile, OpenContent]], annotations: Mapping[str, str], scratch: Path
) -> Artifact:
    """Build the artifact of an image with the base's layers and a new layer, which holds `files` under /models.

    The new layer is written to the file `scratch`, which must exist until the artifact is pushed.
    """
    with scratch.open("wb") as stream:
        diff_id = _write_layer(files, stream)
    with scratch.open("rb") as stream:
        digest, size = digests.from_stream(stream)
    layer = Descriptor(media_type=f"{_LAYER_TYPE}+gzip", digest=digest, size=size, annotations={WHOLE: "whole"})
    config = manifest.encode(_config(base.config, diff_id, annotations))
    described = manifest.describe_content(manifest.IMAGE_CONFIG_TYPE, config)
    data = manifest.build(None, described, (*base.layers, layer), dict(annotations))
    sources: list[tuple[Descriptor, OpenContent]] = []
    if base.store is not None:
        sources = [(base_layer, partial(_open, base.store, base_layer)) for base_layer in base.layers]
    return Artifact(data, config, (*sources, (layer, file_opener(scratch))))


def _write_layer(files: list[tuple[VersionFile, OpenContent]], into: BinaryIO) -> str:
    """Write the compressed layer to `into`, and return the digest of its uncompressed archive (the config's `diff_id`)."""
    with gzip.GzipFile(filename="", mode="wb", compresslevel=LEVEL, fileobj=into, mtime=0) as packed:
        hashing = _HashingWriter(cast(BinaryIO, packed))
        with tarfile.open(fileobj=cast(BinaryIO, hashing), mode="w|", format=tarfile.PAX_FORMAT, bufsize=digests.CHUNK) as tar:
            tar.addfile(_entry(ROOT, folder=True))
            tar.addfile(_entry(f"{ROOT}/{OPAQUE}"))
            for folder in sorted({str(parent) for file, _ in files for parent in PurePosixPath(file.path).parents} - {"."}):
                tar.addfile(_entry(f"{ROOT}/{folder}", folder=True))
            for file, source in files:
                with source() as stream:
                    tar.addfile(_entry(f"{ROOT}/{file.path}", size=file.content.size), stream)
    return f"sha256:{hashing.sha.hexdigest()}"


def _entry(path: str, *, folder: bool = False, size: int = 0) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path)
    entry.type, entry.mode = (tarfile.DIRTYPE, 0o755) if folder else (tarfile.REGTYPE, 0o644)
    entry.size = size
    return entry


class _HashingWriter:
    def __init__(self, into: BinaryIO) -> None:
        self._into = into
        self.sha = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.sha.update(data)
        return self._into.write(data)


def _config(base: Mapping[str, Any], diff_id: str, annotations: Mapping[str, str]) -> dict[str, Any]:
    """Return the base image's config with one more layer, and with the annotations as labels (shown by `docker inspect`)."""
    config = dict(base)
    rootfs = dict(config.get("rootfs") or {})
    inner = dict(config.get("config") or {})
    config["rootfs"] = {"type": "layers", "diff_ids": [*rootfs.get("diff_ids", []), diff_id]}
    config["config"] = inner | {"Labels": {**(inner.get("Labels") or {}), **annotations}}
    history = {"created_by": "model-registry push --image", "comment": f"the model package, under /{ROOT}"}
    created = {"created": annotations[manifest.CREATED]} if manifest.CREATED in annotations else {}
    return config | created | {"history": [*(config.get("history") or []), history | created]}


def _as_oci(layer: Descriptor) -> Descriptor:
    """Return a layer's descriptor with OCI's media type, because a manifest must not mix Docker's media types with OCI's."""
    packing = manifest.compression(layer)
    return msgspec.structs.replace(layer, media_type=_LAYER_TYPE + (f"+{packing}" if packing else ""))


def _open(store: Store, content: Descriptor) -> BinaryIO:
    return cast(BinaryIO, ChunkReader(store.blob(content)))
