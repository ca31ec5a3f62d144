"""Signatures in a real registry, which has no referrers API: they are listed under a tag."""

import io
from pathlib import Path

import pytest

from model_registry import package
from model_registry.errors import Refused
from model_registry.oci import manifest, reference
from model_registry.stores.remote import RemoteStore
from model_registry.trust import bundle, referrers, signing
from model_registry.trust.gate import Gate
from model_registry.trust.policy import Policy
from tests.conformance.store import put_manifest
from tests.integration.registry.conftest import AT_ONCE, PLAIN
from tests.unit.model_registry.conftest import MakePackage
from tests.unit.model_registry.keyring import NOW, ONE, TWO, trusted

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


def transplant(source: RemoteStore, digest: str, into: RemoteStore) -> None:
    """Copy a version and all its signatures into another repository, as anybody can who may write there."""
    data = source.manifest(digest)
    for content in manifest.named(data):
        into.push_blob(content, io.BytesIO(b"".join(source.blob(content))))
    into.push_manifest(data)
    for evidence in signing.collect(source, digest):
        referrers.attach(into, digest, bundle.MEDIA_TYPE, evidence.data, {})


@pytest.mark.parametrize(("names", "strict"), [(["other:1.0.0"], False), (["other:1.0.0"], True), ([], True)])
def test_another_model_with_the_same_key_is_refused_by_name(
    remote: RemoteStore, repository: str, make_package: MakePackage, names: list[str], strict: bool
) -> None:
    other = RemoteStore(reference.parse(f"{repository}/other"), PLAIN, AT_ONCE)
    digest = package.push(other, make_package(), "other", "1.0.0").digest
    signing.sign(other, digest, ONE, NOW, names)
    named = Gate(Policy(Path("policy.yaml"), True, tuple(trusted(ONE)), frozenset(), named=bool(names)), None)
    assert named.check(other, digest, "1.0.0", NOW) == "key-1"
    transplant(other, digest, remote)
    gate = Gate(Policy(Path("policy.yaml"), True, tuple(trusted(ONE)), frozenset(), named=strict), None)
    model = repository.rpartition("/")[2]
    with pytest.raises(Refused, match=f"not as '{model}:1.0.0'"):
        gate.check(remote, digest, "1.0.0", NOW)
    signing.sign(remote, digest, ONE, NOW, [f"{model}:1.0.0"])
    assert gate.check(remote, digest, "1.0.0", NOW) == "key-1"
    with pytest.raises(Refused, match=f"not as '{model}:2.0.0'"):
        gate.check(remote, digest, "2.0.0", NOW)
