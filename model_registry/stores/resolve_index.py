"""Resolves a digest to the manifest of a version: the manifest with this digest, or a manifest selected from an image index.

A model runs on any platform. Therefore the entry without a platform is preferred, then the entry for linux/amd64, then the only
entry of an index.
"""

from dataclasses import replace

from model_registry.errors import Refused
from model_registry.oci import manifest
from model_registry.oci.manifest import VersionManifest
from model_registry.stores.base import Store

PLATFORM = ("linux", "amd64")
_MANIFESTS = (manifest.MANIFEST_TYPE, manifest.DOCKER_MANIFEST_TYPE)
_ATTESTATION = "vnd.docker.reference.type"  # annotation of attestations, which build tools add to an index with images


def describe_version(store: Store, digest: str, *, version: str = "", repository: str = "") -> VersionManifest:
    """Return the parsed manifest of a version, always with a model name and a version.

    Args:
        store: The store.
        digest: The digest of the version.
        version: The version if the manifest states none; by default the first 12 digits of the digest.
        repository: The repository from which the model name is taken if the manifest states none; by default the store's.

    Raises:
        Corrupt: The manifest is not that of a model version.
        Refused: The index has no suitable manifest.
        NotFound, Unreachable: Errors of the store.
    """
    parsed = manifest.parse_version(select_manifest(store, digest))
    name = parsed.name or (repository or store.repository).rpartition("/")[2]
    version = parsed.version or version or digest.partition(":")[2][:12]
    return replace(parsed, name=name, version=version)


def select_manifest(store: Store, digest: str) -> bytes:
    """Return the bytes of the manifest with this digest. If the digest is that of an index, select a manifest from the index.

    An entry without a platform is preferred, then the entry for linux/amd64, then the only entry. Raises Refused if the index
    has none of these. Also raises the errors of the store.
    """
    data = store.manifest(digest)
    if not manifest.is_index(data):
        return data
    index = manifest.parse_index(data)
    entries = [entry for entry in index.manifests if entry.media_type in _MANIFESTS and _ATTESTATION not in entry.annotations]
    without_platform = [entry for entry in entries if entry.platform is None or entry.platform.os in ("", "unknown")]
    for_platform = [
        entry for entry in entries if entry.platform and (entry.platform.os, entry.platform.architecture) == PLATFORM
    ]
    suitable = without_platform or for_platform or (entries if len(entries) == 1 else [])
    if not suitable:
        platforms = (
            ", ".join(f"{entry.platform.os}/{entry.platform.architecture}" for entry in entries if entry.platform) or "none"
        )
        raise Refused(
            f"the image index has no manifest without a platform or for linux/amd64; its platforms: {platforms}",
            "push a manifest without a platform, or for linux/amd64",
        )
    return store.manifest(suitable[0].digest)
