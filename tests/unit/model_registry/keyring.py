"""A signed repository for the tests of signatures: keys, versions, and a store that answers the referrers API."""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from cryptography.hazmat.primitives.asymmetric import ec

from model_registry.errors import Corrupt, NotFound
from model_registry.oci import manifest, tags
from model_registry.oci.manifest import Descriptor
from model_registry.signing.keys import PrivateKey
from model_registry.signing.signatures import TrustedKey
from model_registry.stores.base import Store
from model_registry.stores.oci_layout import LayoutStore
from tests.conformance.store import put_manifest

NOW = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)
ONE, TWO = (PrivateKey(ec.generate_private_key(ec.SECP256R1())) for _ in range(2))
"""Two pairs of keys."""


def trusted(*keys: PrivateKey, not_after: datetime | None = None) -> list[TrustedKey]:
    """Return the public keys, named key-1, key-2 and so on."""
    return [TrustedKey(f"key-{at}", key.public(), not_after) for at, key in enumerate(keys, start=1)]


class ApiStore(LayoutStore):
    """A folder that lists referrers by reading every manifest, as a registry with the referrers API does."""

    def referrers(self, digest: str) -> list[Descriptor] | None:
        listed: list[Descriptor] = []
        for path in sorted((self._path / "blobs" / "sha256").iterdir()):
            data = path.read_bytes()
            try:
                parsed = manifest.parse(data)
            except Corrupt:
                continue
            if parsed.subject and parsed.subject.digest == digest:
                listed.append(manifest.describe_manifest(data))
        return listed

    def push_referrer(self, data: bytes) -> tuple[Descriptor, bool]:
        return self.push_manifest(data), True


class LyingStore(ApiStore):
    """A registry that returns `lies` as its list of referrers and has no list under a tag."""

    def __init__(self, path: Path, lies: Iterable[Descriptor]) -> None:
        super().__init__(path)
        self._lies = list(lies)

    def referrers(self, digest: str) -> list[Descriptor] | None:  # noqa: ARG002 - the list is the same for all digests
        return self._lies

    def resolve(self, tag: str) -> Descriptor:
        if tags.is_referrers(tag):
            raise NotFound(f"no tag {tag!r}")
        return super().resolve(tag)


def version(store: Store, note: str = "one") -> str:
    return put_manifest(store, note).digest


def rewritten(store: LayoutStore, descriptor: Descriptor, **changes: object) -> Descriptor:
    document = msgspec.json.decode(store.manifest(descriptor.digest)) | changes
    return store.push_manifest(manifest.encode(document))
