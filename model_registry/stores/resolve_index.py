"""What a digest in a store stands for: a version's manifest, or an index of which one manifest is chosen.

A model runs anywhere, so of an image index the entry without a platform is taken, else the one for linux/amd64.
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
    """What the version consists of. Where the manifest does not say, its name is the last part of `repository` (of the store's,
    where that is empty), and its version `version`, or the beginning of the digest.

    Raises NotFound, Unreachable; Corrupt: no version; Refused: an index without a manifest that could be meant.
    """
    found, place = manifest.parse_version(select_manifest(store, digest)), repository or store.repository
    version = found.version or version or digest.partition(":")[2][:12]
    return replace(found, name=found.name or place.rpartition("/")[2], version=version)


def select_manifest(store: Store, digest: str) -> bytes:
    """The manifest with this digest, or the one chosen where that is an image index. Raises as `describe_version` does."""
    data = store.manifest(digest)
    if not manifest.is_index(data):
        return data
    index = manifest.parse_index(data)
    entries = [one for one in index.manifests if one.media_type in _MANIFESTS and _ATTESTATION not in one.annotations]
    anywhere = [one for one in entries if one.platform is None or one.platform.os in ("", "unknown")]
    here = [one for one in entries if one.platform and (one.platform.os, one.platform.architecture) == PLATFORM]
    found = anywhere or here or (entries if len(entries) == 1 else [])
    if not found:
        there = ", ".join(f"{one.platform.os}/{one.platform.architecture}" for one in entries if one.platform) or "none"
        raise Refused(f"the image index has manifests for {there}", "push one without a platform, or for linux/amd64")
    return store.manifest(found[0].digest)
