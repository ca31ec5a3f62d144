"""The versions that a policy admits, with the registry available and unavailable."""

import os
import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from model_registry.errors import BadFile, Refused, Unreachable
from model_registry.oci import digests
from model_registry.signing import bundle, signatures
from model_registry.signing import signature_cache as kept_proofs
from model_registry.signing.admission import PolicyAdmission, admission
from model_registry.signing.keys import PrivateKey
from model_registry.signing.policy import Policy
from model_registry.stores.oci_layout import LayoutStore
from tests.unit.model_registry.keyring import NOW, ONE, TWO, trusted, version


def policy(*keys: PrivateKey, required: bool = True, denied: str = "", days: int | None = None) -> Policy:
    """Return a policy that trusts these keys, for `days` from now on."""
    until = NOW + timedelta(days=days) if days else None
    return Policy(Path("policy.yaml"), required, tuple(trusted(*keys, not_after=until)), frozenset([denied] if denied else []))


@pytest.fixture
def proofs(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "proofs"


@pytest.fixture
def signed(store: LayoutStore) -> str:
    digest = version(store)
    signatures.sign(store, digest, ONE, NOW)
    return digest


def unavailable(store: LayoutStore) -> LayoutStore:
    return LayoutStore(store._path.with_name("absent"))


def test_a_signed_version_is_admitted_with_and_then_without_the_registry(store: LayoutStore, signed: str, proofs: Path) -> None:
    policy_admission = PolicyAdmission(policy(TWO, ONE), proofs)
    assert policy_admission.check(store, signed, "1.0.0", NOW) == "key-2"
    assert policy_admission.check(unavailable(store), signed, "1.0.0", NOW) == "key-2"
    assert PolicyAdmission(policy(ONE), proofs).check(unavailable(store), signed, "1.0.0", NOW) == "key-1"


@pytest.mark.parametrize("required", [True, False])
def test_a_denied_version_is_refused_although_its_proof_is_stored(
    store: LayoutStore, signed: str, proofs: Path, required: bool
) -> None:
    PolicyAdmission(policy(ONE), proofs).check(store, signed, "1.0.0", NOW)
    for registry_store in (store, unavailable(store)):
        with pytest.raises(Refused, match=r"denied by the policy policy\.yaml"):
            PolicyAdmission(policy(ONE, required=required, denied=signed), proofs).check(registry_store, signed, "1.0.0", NOW)


def test_a_stored_proof_is_checked_against_the_current_policy(store: LayoutStore, signed: str, proofs: Path) -> None:
    PolicyAdmission(policy(ONE, days=2), proofs).check(store, signed, "1.0.0", NOW)
    with pytest.raises(Refused, match="the signature is not from a trusted key"):
        PolicyAdmission(policy(TWO), proofs).check(store, signed, "1.0.0", NOW)
    with pytest.raises(Refused, match="only"):
        PolicyAdmission(policy(ONE, days=2), proofs).check(store, signed, "1.0.0", NOW + timedelta(days=2))
    with pytest.raises(Unreachable):
        PolicyAdmission(policy(TWO), proofs).check(unavailable(store), signed, "1.0.0", NOW)
    signatures.sign(store, signed, TWO, NOW)
    assert PolicyAdmission(policy(TWO), proofs).check(store, signed, "1.0.0", NOW) == "key-1"


def test_an_unsigned_version_and_one_with_the_signature_of_an_untrusted_key(store: LayoutStore, proofs: Path) -> None:
    digest = version(store)
    with pytest.raises(Refused, match="there is no signature"):
        PolicyAdmission(policy(ONE), proofs).check(store, digest, "1.0.0", NOW)
    optional = PolicyAdmission(policy(ONE, required=False), proofs)
    with pytest.raises(Unreachable):
        optional.check(unavailable(store), digest, "1.0.0", NOW)
    assert optional.check(store, digest, "1.0.0", NOW) is None
    assert optional.check(unavailable(store), digest, "1.0.0", NOW) is None
    with pytest.raises(Unreachable):
        PolicyAdmission(policy(ONE), proofs).check(unavailable(store), digest, "1.0.0", NOW)
    signatures.sign(store, digest, TWO, NOW)
    with pytest.raises(Refused, match="the signature is not from a trusted key"):
        optional.check(store, digest, "1.0.0", NOW)


def test_attestations_of_other_types_are_neither_signatures_nor_faults(store: LayoutStore, proofs: Path) -> None:
    digest = version(store)
    signatures.attach(
        store,
        digest,
        "https://x.org/y",
        b'{"_type":"https://in-toto.io/Statement/v1","subject":[],"predicateType":"https://x.org/y"}',
        TWO,
        NOW,
    )
    assert PolicyAdmission(policy(ONE, required=False), proofs).check(store, digest, "1.0.0", NOW) is None
    with pytest.raises(Refused, match="there is no signature"):
        PolicyAdmission(policy(ONE), proofs).check(store, digest, "1.0.0", NOW)


@pytest.mark.parametrize("damage", [b"", b"{}", b"noise", b"x" * (bundle.MAX_BYTES + 1)])
def test_a_damaged_proof_proves_nothing_and_is_replaced(store: LayoutStore, signed: str, proofs: Path, damage: bytes) -> None:
    policy_admission = PolicyAdmission(policy(ONE), proofs)
    policy_admission.check(store, signed, "1.0.0", NOW)
    (stored,) = proofs.iterdir()
    stored.write_bytes(damage)
    with pytest.raises(Unreachable):
        policy_admission.check(unavailable(store), signed, "1.0.0", NOW)
    policy_admission.check(store, signed, "1.0.0", NOW)
    assert policy_admission.check(unavailable(store), signed, "1.0.0", NOW) == "key-1"


def test_a_proof_of_another_version_proves_nothing(store: LayoutStore, proofs: Path) -> None:
    signed_version, other_version = version(store, "one"), version(store, "two")
    signatures.sign(store, signed_version, ONE, NOW)
    policy_admission = PolicyAdmission(policy(ONE), proofs)
    policy_admission.check(store, signed_version, "1.0.0", NOW)
    shutil.copy(proofs / f"{digests.hex_digits(signed_version)}.json", proofs / f"{digests.hex_digits(other_version)}.json")
    with pytest.raises(Refused):
        policy_admission.check(store, other_version, "1.0.0", NOW)


def test_a_folder_that_cannot_be_written_stores_no_proof_and_is_no_error(store: LayoutStore, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    digest = version(store)
    signatures.sign(store, digest, ONE, NOW)
    assert PolicyAdmission(policy(ONE), tmp_path / "file").check(store, digest, "1.0.0", NOW) == "key-1"


def test_the_least_recently_used_proofs_are_deleted(store: LayoutStore, proofs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy_admission = PolicyAdmission(policy(ONE), proofs)
    signed = [version(store, str(number)) for number in range(6)]
    for number, digest in enumerate(signed[:-1]):
        signatures.sign(store, digest, ONE, NOW)
        policy_admission.check(store, digest, "1.0.0", NOW)
        os.utime(proofs / f"{digests.hex_digits(digest)}.json", (number, number))
    policy_admission.check(unavailable(store), signed[0], "1.0.0", NOW)
    monkeypatch.setattr(kept_proofs, "MAX_ENTRIES", 3)
    signatures.sign(store, signed[-1], ONE, NOW)
    policy_admission.check(store, signed[-1], "1.0.0", NOW)
    assert {path.stem for path in proofs.iterdir()} == {digests.hex_digits(digest) for digest in (signed[0], *signed[-2:])}


def test_a_policy_file_decides_the_admission(store: LayoutStore, tmp_path: Path) -> None:
    digest = version(store)
    assert admission(None, tmp_path).check(unavailable(store), digest, "1.0.0", NOW) is None
    (tmp_path / "one.pub").write_bytes(ONE.public().pem())
    (tmp_path / "policy.yaml").write_text("signatures: required\nkeys: [{id: release, file: one.pub}]\n")
    policy_admission = admission(tmp_path / "policy.yaml", tmp_path)
    with pytest.raises(Refused):
        policy_admission.check(store, digest, "1.0.0", NOW)
    signatures.sign(store, digest, ONE, NOW)
    assert policy_admission.check(store, digest, "1.0.0", NOW) == "release"
    with pytest.raises(BadFile):
        admission(tmp_path / "nowhere.yaml", tmp_path)


@pytest.mark.parametrize(("names", "strict"), [(["other:1.0.0"], False), (["other:1.0.0"], True), ([], True)])
def test_another_model_with_the_same_key_is_refused_by_name(
    store: LayoutStore, tmp_path: Path, names: list[str], strict: bool
) -> None:
    """A user with write access to a repository can copy a version and all its signatures there."""
    other = LayoutStore(tmp_path / "registry" / "other")
    digest = version(other)
    signatures.sign(other, digest, ONE, NOW, names)
    assert PolicyAdmission(replace(policy(ONE), named=bool(names)), None).check(other, digest, "1.0.0", NOW) == "key-1"
    shutil.copytree(other._path, store._path)
    gate = PolicyAdmission(replace(policy(ONE), named=strict), None)
    with pytest.raises(Refused, match=r"not as 'flight-delay:1\.0\.0'"):
        gate.check(store, digest, "1.0.0", NOW)
    signatures.sign(store, digest, ONE, NOW, ["flight-delay:1.0.0"])
    assert gate.check(store, digest, "1.0.0", NOW) == "key-1"
    with pytest.raises(Refused, match=r"not as 'flight-delay:2\.0\.0'"):
        gate.check(store, digest, "2.0.0", NOW)
