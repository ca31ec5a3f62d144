"""Signatures in a real registry, which has no referrers API: they are listed under a tag."""

import pytest

from model_registry.errors import Refused
from model_registry.stores.remote import RemoteStore
from model_registry.trust import referrers, signing
from tests.unit.registry.store_conformance import put_manifest
from tests.unit.registry.trust import NOW, ONE, TWO, trusted

pytestmark = pytest.mark.debian("docker-registry")


def test_what_was_signed_verifies(remote: RemoteStore) -> None:
    digest = put_manifest(remote, "one").digest
    with pytest.raises(Refused, match="it has no signature"):
        signing.verify(remote, digest, trusted(ONE), NOW)
    for key in (ONE, TWO):
        assert signing.sign(remote, digest, key, NOW)
        assert signing.sign(remote, digest, key, NOW) is None
    assert sorted(signing.verify(remote, digest, trusted(ONE, TWO), NOW)) == ["key-1", "key-2"]
    assert remote.tags() == [referrers.fallback_tag(digest)]
