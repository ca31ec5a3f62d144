"""What a digest in a store stands for: a version's manifest."""

from dataclasses import replace

from model_registry import manifest
from model_registry.manifest import Version
from model_registry.stores import Store


def describe(store: Store, digest: str, *, version: str = "") -> Version:
    """What the version consists of; where its manifest does not say which it is, it is `version`.

    Raises NotFound, Unreachable; Corrupt: no version.
    """
    found = manifest.parse_version(store.manifest(digest))
    return replace(found, version=found.version or version)
