"""A policy that requires a passed comparison: valid and invalid proofs, and stored proofs while the registry is unavailable."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from model_registry.errors import Refused, Unreachable
from model_registry.signing import bundle, referrers, signature_cache, signatures
from model_registry.signing.admission import PolicyAdmission
from model_registry.signing.attestation import attest
from model_registry.signing.keys import PrivateKey
from model_registry.signing.policy import Policy
from model_registry.signing.predicates import COMPARISON
from model_registry.stores.oci_layout import LayoutStore
from tests.support.attested import comparison
from tests.unit.model_registry.keyring import NOW, ONE, TWO, trusted, version


def policy(*keys: PrivateKey, required: bool = False, denied: str = "", days: int | None = None) -> Policy:
    until = NOW + timedelta(days=days) if days else None
    denials = frozenset([denied] if denied else [])
    return Policy(Path("policy.yaml"), required, tuple(trusted(*keys, not_after=until)), denials, compared=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "proofs"


@pytest.fixture
def digest(store: LayoutStore) -> str:
    return version(store)


def unavailable(store: LayoutStore) -> LayoutStore:
    return LayoutStore(store._path.with_name("absent"))


def attest_comparison(store: LayoutStore, digest: str, key: PrivateKey = ONE, verdict: str = "passed", **changes: Any) -> None:
    attest(store, digest, "comparison", comparison(digest, verdict, **changes), key, NOW)


def test_a_version_without_a_passed_comparison_is_refused_with_the_remedy(store: LayoutStore, digest: str) -> None:
    gate = PolicyAdmission(policy(ONE), None)
    with pytest.raises(Refused, match=r"policy\.yaml requires: it has no comparison") as refused:
        gate.check(store, digest, "1.0.0", NOW)
    assert digest in str(refused.value)
    assert f"model-registry attest {store.repository}@{digest} --type comparison" in refused.value.hint
    attest_comparison(store, digest, verdict="refused")
    with pytest.raises(Refused, match="'key-1' signed the verdict 'refused': the rule not-worse did not pass"):
        gate.check(store, digest, "1.0.0", NOW)
    attest_comparison(store, digest, verdict="same")
    attest_comparison(store, digest, TWO)
    with pytest.raises(Refused, match=r"'key-1' signed the verdict 'same'.*; the signature is not from a trusted key"):
        gate.check(store, digest, "1.0.0", NOW)
    attest_comparison(store, digest)
    assert gate.check(store, digest, "1.0.0", NOW) is None, "signatures are optional here"
    assert gate.check_comparison(store, digest, NOW) == "key-1"


def test_neither_a_signature_nor_another_attestation_replaces_a_comparison(store: LayoutStore, digest: str) -> None:
    signatures.sign(store, digest, ONE, NOW)
    attest(store, digest, "evaluation", {"dataset": "x", "metrics": {"auc": 1}}, ONE, NOW)
    with pytest.raises(Refused, match="it has no comparison"):
        PolicyAdmission(policy(ONE, required=True), None).check(store, digest, "1.0.0", NOW)
    attest_comparison(store, digest)
    assert PolicyAdmission(policy(ONE, required=True), None).check(store, digest, "1.0.0", NOW) == "key-1"


def test_a_comparison_does_not_replace_a_signature(store: LayoutStore, digest: str) -> None:
    attest_comparison(store, digest)
    with pytest.raises(Refused, match="there is no signature"):
        PolicyAdmission(policy(ONE, required=True), None).check(store, digest, "1.0.0", NOW)


def test_without_the_rule_no_comparison_is_required(store: LayoutStore, digest: str) -> None:
    without_rule = Policy(Path("policy.yaml"), False, tuple(trusted(ONE)), frozenset())
    assert PolicyAdmission(without_rule, None).check(store, digest, "1.0.0", NOW) is None
    assert PolicyAdmission(without_rule, None).check_comparison(unavailable(store), digest, NOW) is None


def test_a_proof_on_disk_admits_without_the_registry(store: LayoutStore, digest: str, folder: Path) -> None:
    signatures.sign(store, digest, ONE, NOW)
    attest_comparison(store, digest)
    policy_admission = PolicyAdmission(policy(ONE, required=True), folder)
    with pytest.raises(Unreachable):
        policy_admission.check(unavailable(store), digest, "1.0.0", NOW)
    assert policy_admission.check(store, digest, "1.0.0", NOW) == "key-1"
    assert policy_admission.check(unavailable(store), digest, "1.0.0", NOW) == "key-1"
    with pytest.raises(Refused, match="denied"):
        PolicyAdmission(policy(ONE, denied=digest), folder).check(unavailable(store), digest, "1.0.0", NOW)
    for untrusting in (PolicyAdmission(policy(TWO), folder), PolicyAdmission(policy(ONE, days=1), folder)):
        with pytest.raises(Refused, match=r"not from a trusted key|only"):
            untrusting.check_comparison(store, digest, NOW + timedelta(days=1))


@pytest.mark.parametrize("damage", [b"", b"{}", b"noise", b"x" * (bundle.MAX_BYTES + 1)])
def test_a_damaged_or_foreign_proof_proves_nothing(store: LayoutStore, digest: str, folder: Path, damage: bytes) -> None:
    attest_comparison(store, digest)
    policy_admission = PolicyAdmission(policy(ONE), folder)
    policy_admission.check_comparison(store, digest, NOW)
    (stored,) = (folder / "comparisons").iterdir()
    content = stored.read_bytes()
    stored.write_bytes(damage)
    with pytest.raises(Unreachable):
        policy_admission.check_comparison(unavailable(store), digest, NOW)
    other = version(store, "two")
    stored.with_name(f"{other.removeprefix('sha256:')}.json").write_bytes(content)
    with pytest.raises(Refused):
        policy_admission.check_comparison(store, other, NOW)
    assert policy_admission.check_comparison(store, digest, NOW) == "key-1"
    assert policy_admission.check_comparison(unavailable(store), digest, NOW) == "key-1"


def test_a_comparison_signed_by_a_trusted_key_that_its_type_does_not_allow_proves_nothing(
    store: LayoutStore, digest: str
) -> None:
    """The owner of a key may sign any bytes with other tools, and a comparison may be copied to another version."""
    other = version(store, "two")
    for predicate in ({"verdict": "passed"}, comparison(other), comparison(digest) | {"rules": []}):
        signatures.attach(store, digest, COMPARISON, bundle.build_statement(digest, COMPARISON, predicate), ONE, NOW)
    attest_comparison(store, other)
    (other_bundle,) = signatures.collect(store, other)
    referrers.attach(store, digest, bundle.MEDIA_TYPE, other_bundle.data, {})
    referrers.attach(store, digest, bundle.MEDIA_TYPE, b"noise", {})
    with pytest.raises(Refused, match="another digest") as refused:
        PolicyAdmission(policy(ONE), None).check_comparison(store, digest, NOW)
    for fault in ("run is None", "challenger.digest is", "rules must list"):
        assert fault in str(refused.value)
    assert PolicyAdmission(policy(ONE), None).check_comparison(store, other, NOW) == "key-1"


def test_signatures_and_comparisons_are_stored_separately(
    store: LayoutStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signature_cache, "MAX_ENTRIES", 2)
    policy_admission = PolicyAdmission(policy(ONE, required=True), folder)
    for number in range(2):
        first_version = version(store, str(number))
        signatures.sign(store, first_version, ONE, NOW)
        attest_comparison(store, first_version)
        policy_admission.check(store, first_version, "1.0.0", NOW)
    assert len(list(folder.glob("*.json"))) == len(list((folder / "comparisons").glob("*.json"))) == 2
