"""Signed moves of a channel: the content that a signature covers, the refusals, and the highest accepted revision."""

import io
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from model_registry.channels import channel, history, signed_move
from model_registry.channels.history import ChannelMove
from model_registry.channels.move_request import MoveRequest
from model_registry.channels.signed_move import MoveAdmission, SignedMoveAdmission, move_admission
from model_registry.errors import Refused, RegistryError
from model_registry.oci import manifest, tags
from model_registry.signing import bundle
from model_registry.signing.keys import PrivateKey
from model_registry.signing.policy import Policy
from model_registry.stores.base import Store
from model_registry.stores.oci_layout import LayoutStore
from tests.unit.model_registry.conftest import MakePackage, promote, push_versions
from tests.unit.model_registry.keyring import NOW, ONE, TWO, trusted

VERSIONS = ("1.0.0", "2.0.0", "3.0.0")


@pytest.fixture
def stocked(store: LayoutStore, make_package: MakePackage) -> LayoutStore:
    """Store three versions, and promote the first to `prod` by a signed move."""
    push_versions(store, make_package, *VERSIONS)
    promote(store, "1.0.0", key=ONE)
    return store


def gate(folder: Path | None = None, key: PrivateKey = ONE, days: int | None = None) -> SignedMoveAdmission:
    until = NOW + timedelta(days=days) if days else None
    keys = tuple(trusted(key, not_after=until))
    return SignedMoveAdmission(Policy(Path("policy.yaml"), False, (), frozenset(), signed_moves=True, move_keys=keys), folder)


def check(admission: MoveAdmission, store: Store, name: str = "prod") -> str | None:
    return admission.check(store, name, channel.resolve(store, name), NOW)


def restore_tag(store: LayoutStore, revision: int, digest: str) -> None:
    """Point the channel at an earlier state and delete the entries after it, as a writer of the registry can."""
    for later in tags.revisions(store.tags(), "prod"):
        if later > revision:
            entry = store.resolve(tags.history_tag("prod", later)).digest
            expect = {name: store.resolve(name).digest for name in store.tags()}
            store.delete([entry], expect=expect, grace_seconds=0)
    store.move_tags({"prod": manifest.describe_manifest(store.manifest(digest))}, expect={})


def forge(store: LayoutStore, stated: ChannelMove, signed: ChannelMove, key: PrivateKey = TWO) -> None:
    """Write an entry, with a statement about another move beside it, and point the channel at the target of the entry."""
    statement = history.sign(signed, store.repository, key)
    layer, empty = (
        manifest.describe_content(bundle.MEDIA_TYPE, statement),
        manifest.describe_content(manifest.EMPTY_TYPE, manifest.EMPTY),
    )
    store.push_blob(layer, io.BytesIO(statement))
    target = manifest.describe_manifest(store.manifest(stated.to_digest))
    entry = store.push_manifest(history.encode(stated, empty, target, layer))
    store.move_tags({tags.history_tag("prod", stated.revision): entry, "prod": target}, expect={})


def test_a_signed_move_is_accepted_by_a_key_that_is_trusted_for_moves(stocked: LayoutStore) -> None:
    assert check(gate(), stocked) == "key-1"
    promote(stocked, "2.0.0", canary=5, key=ONE)
    assert check(gate(), stocked) == "key-1", "an index with roles"
    restored = channel.rollback(stocked, "prod", MoveRequest("op", "", NOW, evidence=b"{}", key=ONE))
    assert restored.signature is not None
    assert channel.history(stocked, "prod")[-1] == restored
    assert check(gate(), stocked) == "key-1", "a rollback, with evidence"
    with pytest.raises(Refused, match="the signature is not from a trusted key"):
        check(gate(key=TWO), stocked)
    with pytest.raises(Refused, match="is trusted until"):
        gate(days=1).check(stocked, "prod", channel.resolve(stocked, "prod"), NOW + timedelta(days=1))


def test_a_copy_in_a_repository_of_the_same_name_is_accepted_and_of_another_is_not(
    stocked: LayoutStore, tmp_path: Path
) -> None:
    for name, accepted in (("flight-delay", True), ("other", False)):
        copy = LayoutStore(tmp_path / "mirror" / name)
        copy._path.parent.mkdir(exist_ok=True)
        copy._path.symlink_to(stocked._path)
        if accepted:
            assert check(gate(), copy) == "key-1"
        else:
            with pytest.raises(Refused, match="signed model 'flight-delay', not 'other'"):
                check(gate(), copy)


def test_an_unsigned_move_and_a_tag_without_a_history_are_refused_with_the_remedy(stocked: LayoutStore) -> None:
    promote(stocked, "2.0.0")
    with pytest.raises(Refused, match=r"'prod' to 2\.0\.0 \(revision 2\) .*no signature") as refused:
        check(gate(), stocked)
    assert "--key FILE" in refused.value.hint
    with pytest.raises(Refused, match=r"'1\.0\.0' is not a channel, but the policy policy\.yaml requires signed moves"):
        check(gate(), stocked, "1.0.0")
    assert check(gate(), stocked, stocked.resolve("1.0.0").digest) is None, "a digest cannot be moved"


@pytest.mark.parametrize(
    "forged",
    [
        {"revision": 2},
        {"revision": 2, "reason": "trust me"},
        {"revision": 2, "to_version": "9.9.9"},
        {"revision": 2, "actor": "chief"},
        {"revision": 2, "restores": 1},
    ],
)
def test_a_statement_about_another_move_proves_nothing(stocked: LayoutStore, forged: dict[str, object]) -> None:
    (signed,) = channel.history(stocked, "prod")
    stolen = replace(signed, **forged)  # type: ignore[arg-type]
    forge(stocked, stolen, signed, ONE)
    with pytest.raises(Refused, match="'key-1' signed"):
        check(gate(), stocked)
    other = replace(stolen, to_digest=stocked.resolve("3.0.0").digest)
    forge(stocked, other, signed, ONE)
    with pytest.raises(Refused, match="for another digest"):
        check(gate(), stocked)
    forge(stocked, stolen, stolen, TWO)
    with pytest.raises(Refused, match="the signature is not from a trusted key"):
        check(gate(), stocked)


def test_a_restored_earlier_state_is_refused_after_a_restart_too(stocked: LayoutStore, tmp_path: Path) -> None:
    first = stocked.resolve("prod").digest
    promote(stocked, "2.0.0", key=ONE)
    admission = gate(tmp_path)
    assert check(admission, stocked) == "key-1"
    restore_tag(stocked, 1, first)
    for checker in (admission, gate(tmp_path)):
        with pytest.raises(Refused, match="is at revision 1, but was at revision 2"):
            check(checker, stocked)
        checker.check_earlier(stocked, "prod", channel.resolve(stocked, "prod"), NOW)
    assert check(gate(), stocked) == "key-1", "without a stored revision, revision 2 is unknown"


def test_two_moves_with_one_revision_are_not_exchanged(stocked: LayoutStore, tmp_path: Path) -> None:
    admission = gate(tmp_path)
    check(admission, stocked)
    (signed,) = channel.history(stocked, "prod")
    other = replace(signed, to_digest=stocked.resolve("3.0.0").digest, to_version="3.0.0")
    forge(stocked, other, other, ONE)
    with pytest.raises(Refused, match=r"revision 1 of the channel 'prod' names .*, but named .* before"):
        check(admission, stocked)


def test_a_stored_revision_counts_only_with_the_signature_of_a_trusted_key(stocked: LayoutStore, tmp_path: Path) -> None:
    check(gate(tmp_path), stocked)
    (stored,) = tmp_path.glob("*.json")
    (signed,) = channel.history(stocked, "prod")
    for data in (b"", b"{}", b"[" * 10_000, history.sign(replace(signed, revision=99), stocked.repository, TWO)):
        stored.write_bytes(data)
        assert check(gate(tmp_path), stocked) == "key-1"


def test_no_policy_and_a_policy_without_signed_moves_accept_every_state(stocked: LayoutStore, tmp_path: Path) -> None:
    promote(stocked, "2.0.0")
    (tmp_path / "policy.yaml").write_text("signatures: optional\n")
    for path in (None, tmp_path / "policy.yaml"):
        admission = move_admission(path, tmp_path)
        assert not admission.signed
        assert check(admission, stocked) is None


def test_past_moves_are_the_completed_ones_newest_first(stocked: LayoutStore, monkeypatch: pytest.MonkeyPatch) -> None:
    real = LayoutStore.move_tags
    with monkeypatch.context() as interrupted:
        interrupted.setattr(
            LayoutStore, "move_tags", lambda self, to, expect: real(self, {t: to[t] for t in to if t != "prod"}, expect=expect)
        )
        with pytest.raises(RegistryError):
            promote(stocked, "2.0.0")
    promote(stocked, "3.0.0")
    promote(stocked, "1.0.0")

    def past(before: int | None = None) -> list[int]:
        return [move.revision for move in channel.iter_completed(stocked, "prod", before)]

    assert (past(), past(4), past(3), past(1)) == ([4, 3, 1], [3, 1], [1], [])
    stocked.move_tags({tags.history_tag("prod", 3): stocked.resolve("1.0.0")}, expect={})
    assert past() == [4, 2, 1], "behind an unreadable entry the completed moves are unknown"
    assert signed_move.verify(stocked, "prod", 1, trusted(ONE), NOW).key_id == "key-1"
