"""Resolves a digest to the manifest of a version: the manifest itself, or one that is chosen from an image index.

A model runs on any platform, so the entry without a platform is chosen, else the one for linux/amd64.
"""

from dataclasses import replace

from model_registry.errors import Refused
from model_registry.oci import manifest
from model_registry.oci.manifest import VersionManifest
from model_registry.stores.base import Store

PLATFORM = ("linux", "amd64")
_MANIFESTS = (manifest.MANIFEST_TYPE, manifest.DOCKER_MANIFEST_TYPE)
_ATTESTATION = "vnd.docker.reference.type"  # what build tools put beside an image under the platform unknown/unknown


def describe_version(store: Store, digest: str, *, version: str = "", repository: str = "") -> VersionManifest:
    """Return the content of a version.

    If the manifest does not name the model, its name is the last part of `repository` (by default the store's). If it does
    not name the version, it is `version`, or the first digits of the digest.

    Raises:
        Corrupt: The manifest describes no version.
        Refused: The index has no suitable manifest.
        NotFound, Unreachable: As the store raises them.
    """
    parsed = manifest.parse_version(select_manifest(store, digest))
    name = parsed.name or (repository or store.repository).rpartition("/")[2]
    version = parsed.version or version or digest.partition(":")[2][:12]
    return replace(parsed, name=name, version=version)


def select_manifest(store: Store, digest: str) -> bytes:
    """Return the manifest with this digest, or the one selected from an image index. Raises as `describe_version`."""
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
        raise Refused(f"the image index has manifests for {platforms}", "push one without a platform, or for linux/amd64")
    return store.manifest(suitable[0].digest)
