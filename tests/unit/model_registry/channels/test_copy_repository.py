"""Copies of a repository are complete, repeatable and safe to interrupt, and never replace a newer or another channel."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pytest

from model_registry.channels import channel, copy_repository, retention, signed_move
from model_registry.channels.copy_repository import CopyPlan
from model_registry.channels.move_request import MoveRequest
from model_registry.channels.retention import RetentionRules
from model_registry.errors import Conflict, Corrupt, NotFound, Refused, Unreachable
from model_registry.oci import manifest, tags
from model_registry.oci.manifest import Descriptor
from model_registry.signing import attestation, referrers, signatures
from model_registry.stores.oci_layout import LayoutStore
from tests.conformance.store import put, put_manifest
from tests.unit.model_registry.conftest import MakePackage, promote, push_versions
from tests.unit.model_registry.keyring import NOW, ONE, ApiStore, LyingStore, trusted

KEYS = trusted(ONE)


@pytest.fixture
def stocked(store: LayoutStore, make_package: MakePackage) -> LayoutStore:
    """Store two versions, the first with a signature and an attestation; move `prod` three times and `canary` once."""
    digests = push_versions(store, make_package, "1.0.0", "2.0.0")
    signatures.sign(store, digests["1.0.0"], ONE, NOW, ["flight-delay:1.0.0"])
    attestation.attest(store, digests["1.0.0"], "https://example.com/report/v1", {"auc": 0.9}, ONE, NOW)
    promote(store, "1.0.0", key=ONE)
    promote(store, "2.0.0", canary=5, key=ONE)
    promote(store, "2.0.0", reason="better", key=ONE)
    promote(store, "1.0.0", "canary")
    return store


@pytest.fixture
def target(tmp_path: Path) -> LayoutStore:
    """Return an empty repository of the same model."""
    return LayoutStore(tmp_path / "other" / "flight-delay")


def copy(source: LayoutStore, destination: LayoutStore) -> CopyPlan:
    plan = copy_repository.plan_copy(source, destination)
    copy_repository.copy(source, destination, plan)
    return plan


def named(store: LayoutStore) -> dict[str, str]:
    """Return the digest that each tag names."""
    return {tag: store.resolve(tag).digest for tag in store.tags()}


def test_a_copy_has_all_tags_histories_signatures_and_content(stocked: LayoutStore, target: LayoutStore) -> None:
    copy(stocked, target)
    assert named(target) == named(stocked)
    for name, revision in (("prod", 3), ("canary", 1)):
        assert channel.history(target, name) == channel.history(stocked, name)
        copied = channel.resolve(target, name)
        assert (copied, copied.revision, copied.history) == (
            channel.resolve(stocked, name),
            revision,
            channel.resolve(stocked, name).history,
        )
    digest = target.resolve("1.0.0").digest
    assert signatures.verify(target, digest, KEYS, NOW, "flight-delay:1.0.0") == ["key-1"]
    assert [attested.key_id for attested in attestation.list_attestations(target, digest, KEYS, NOW)] == ["key-1"]
    assert signed_move.verify(target, "prod", 3, KEYS, NOW).key_id == "key-1"
    assert channel.rollback(target, "prod", MoveRequest("op", "", NOW), to_revision=1).revision == 4
    blobs = {path.name for path in (stocked._path / "blobs" / "sha256").iterdir()}
    assert blobs - {path.name for path in (target._path / "blobs" / "sha256").iterdir()} == set()


def test_a_second_copy_is_empty(stocked: LayoutStore, target: LayoutStore) -> None:
    copy(stocked, target)
    plan = copy_repository.plan_copy(stocked, target)
    assert (plan.is_empty, plan.blobs, plan.manifests) == (True, {}, {})


def test_a_later_copy_transfers_only_new_content(stocked: LayoutStore, target: LayoutStore, make_package: MakePackage) -> None:
    copy(stocked, target)
    push_versions(stocked, make_package, "3.0.0")
    promote(stocked, "3.0.0")
    digest = stocked.resolve("2.0.0").digest
    signatures.sign(stocked, digest, ONE, NOW)
    plan = copy(stocked, target)
    assert (list(plan.versions), list(plan.history), len(plan.referrers)) == (["3.0.0"], ["_h.prod.000004"], 1)
    assert [(copied.name, copied.revision, copied.version) for copied in plan.channels] == [("prod", 4, "3.0.0")]
    weights = [content for content in plan.blobs.values() if content.size == len(b"3.0.0" * 1000)]
    assert len(weights) == 1
    assert {content.size for content in plan.blobs.values()}.isdisjoint({len(b"1.0.0" * 1000) + 1})
    assert named(target) == named(stocked)
    assert signatures.verify(target, digest, KEYS, NOW) == ["key-1"]


class Interrupted(LayoutStore):
    """A store that becomes unreachable after some writes."""

    writes_left = 0

    def _count(self) -> None:
        if not self.writes_left:
            raise Unreachable("the network failed")
        self.writes_left -= 1

    def push_blob(self, content: Descriptor, stream: BinaryIO) -> None:
        self._count()
        super().push_blob(content, stream)

    def move_tags(self, to: Mapping[str, Descriptor], *, expect: Mapping[str, str | None]) -> None:
        self._count()
        super().move_tags(to, expect=expect)


def test_a_copy_that_is_interrupted_anywhere_shows_no_channel_without_its_version(stocked: LayoutStore, tmp_path: Path) -> None:
    interruptions = 0
    while True:
        target = Interrupted(tmp_path / f"target-{interruptions}")
        target.writes_left = interruptions
        try:
            copy(stocked, target)
            break
        except Unreachable:
            interruptions += 1
        for name in {"prod", "canary"} & set(target.tags() if target.exists else ()):
            resolution = channel.resolve(target, name)
            assert resolution.revision == channel.resolve(stocked, name).revision
            digest = resolution.digest
            assert all(target.has_blob(blob.digest) for blob in manifest.parse_version(target.manifest(digest)).blobs)
        if interruptions % 5 == 0:
            target.writes_left = 1000
            copy(stocked, target)
            assert named(target) == named(stocked)
    assert interruptions > 20


def test_a_channel_that_names_a_canary_is_copied_with_both_versions(
    store: LayoutStore, target: LayoutStore, make_package: MakePackage
) -> None:
    push_versions(store, make_package, "1.0.0", "2.0.0")
    promote(store, "1.0.0")
    promote(store, "2.0.0", canary=5)
    copy(store, target)
    assert channel.resolve(target, "prod").roles == channel.resolve(store, "prod").roles != ()


def test_a_channel_that_is_newer_at_the_destination_is_refused(stocked: LayoutStore, target: LayoutStore) -> None:
    copy(stocked, target)
    promote(target, "1.0.0")
    tags_before = named(target)
    with pytest.raises(Refused, match=r"'prod' is newer in .*: revision 4 instead of 3") as caught:
        copy(stocked, target)
    assert "copy in the other direction" in caught.value.hint
    assert named(target) == tags_before
    assert [copied.revision for copied in copy(target, stocked).channels] == [4]


def test_a_channel_of_an_interrupted_move_does_not_move_the_copy_backwards(stocked: LayoutStore, target: LayoutStore) -> None:
    copy(stocked, target)
    second, newest = sorted(channel.history(stocked, "prod"), key=lambda move: move.revision)[-2:]
    stocked.move_tags(
        {"prod": manifest.describe_manifest(stocked.manifest(second.to_digest))}, expect={"prod": newest.to_digest}
    )
    with pytest.raises(Refused, match=rf"'prod' is newer in .*: revision {newest.revision} instead of {second.revision}"):
        copy(stocked, target)
    assert channel.resolve(target, "prod").revision == newest.revision


def test_a_channel_with_another_history_is_refused(
    stocked: LayoutStore, target: LayoutStore, make_package: MakePackage, tmp_path: Path
) -> None:
    for version in ("1.0.0", "2.0.0"):
        (tmp_path / version).rename(tmp_path / f"first-{version}")
    push_versions(target, make_package, "1.0.0", "2.0.0")
    promote(target, "2.0.0")
    before = named(target)
    with pytest.raises(Refused, match=r"'prod' has another history in .*: see its revision 1"):
        copy(stocked, target)
    assert named(target) == before


def prune(store: LayoutStore) -> None:
    """Delete all history entries except the newest of each channel."""
    survey = retention.read_repository(store)
    removed = retention.manifests_to_delete(store, retention.plan_removal(survey, RetentionRules(revisions=1)))
    store.delete(removed, expect=survey.tags, grace_seconds=0)


def test_histories_without_a_common_entry_are_compared_by_their_id(stocked: LayoutStore, target: LayoutStore) -> None:
    copy(stocked, target)
    prune(target)
    promote(stocked, "1.0.0")
    prune(stocked)
    assert set(tags.revisions(stocked.tags(), "prod")).isdisjoint(tags.revisions(target.tags(), "prod"))
    assert [copied.revision for copied in copy(stocked, target).channels] == [4]


def test_a_version_with_other_content_at_the_destination_is_refused(stocked: LayoutStore, target: LayoutStore) -> None:
    target.move_tags({"2.0.0": put_manifest(target, "other")}, expect={})
    with pytest.raises(Refused, match=r"version 2\.0\.0 has the digest sha256:.* in .*, and sha256:"):
        copy(stocked, target)
    assert target.tags() == ["2.0.0"]


@pytest.mark.parametrize("reverse", [False, True])
def test_a_channel_and_a_version_of_the_same_name_are_refused(stocked: LayoutStore, target: LayoutStore, reverse: bool) -> None:
    target.move_tags({"prod": put_manifest(target, "a version")}, expect={})
    with pytest.raises(Refused, match=r"'prod' is a (channel|version) in"):
        copy(*((target, stocked) if reverse else (stocked, target)))


def test_content_that_only_the_destination_has_is_not_deleted(
    stocked: LayoutStore, target: LayoutStore, make_package: MakePackage
) -> None:
    push_versions(target, make_package, "9.0.0")
    promote(target, "9.0.0", "own")
    copy(stocked, target)
    assert channel.resolve(target, "own").version == "9.0.0"


def test_referrers_are_copied_between_stores_with_and_without_the_referrers_api(
    stocked: LayoutStore, target: LayoutStore, tmp_path: Path
) -> None:
    digest = stocked.resolve("1.0.0").digest
    api = ApiStore(target._path)
    put_manifest(api, "untagged")
    copy(stocked, api)
    assert not [tag for tag in api.tags() if tags.is_referrers(tag)]
    assert signatures.verify(api, digest, KEYS, NOW) == ["key-1"]
    third = LayoutStore(tmp_path / "third" / "flight-delay")
    copy(api, third)
    assert signatures.verify(third, digest, KEYS, NOW) == ["key-1"]
    assert copy_repository.plan_copy(api, third).is_empty


def test_referrers_of_referrers_and_the_older_tags_of_signatures_are_copied(stocked: LayoutStore, target: LayoutStore) -> None:
    digest = stocked.resolve("2.0.0").digest
    first = referrers.attach(stocked, digest, "application/x.report", b"report", {})
    second = referrers.attach(stocked, first.digest, "application/x.note", b"note", {})
    old = f"{referrers.fallback_tag(digest)}.sig"
    stocked.move_tags({old: put_manifest(stocked, "first signature")}, expect={})
    copy(stocked, target)
    assert [entry.digest for entry in referrers.listed(target, first.digest)] == [second.digest]
    stocked.move_tags({old: put_manifest(stocked, "and a second")}, expect={})
    assert list(copy(stocked, target).signature_tags) == [old]
    assert named(target) == named(stocked)


def put_signatures(store: LayoutStore, *signed: bytes) -> Descriptor:
    """Write a manifest with signatures in the older format of cosign: a layer for each signature."""
    layers = tuple(put(store, signature) for signature in signed)
    return store.push_manifest(manifest.build("application/x.test", put(store, b"{}"), layers, {}))


def test_a_tag_with_further_signatures_at_the_destination_is_not_replaced(stocked: LayoutStore, target: LayoutStore) -> None:
    old = f"{referrers.fallback_tag(stocked.resolve('2.0.0').digest)}.sig"
    stocked.move_tags({old: put_signatures(stocked, b"first")}, expect={})
    copy(stocked, target)
    extended = put_signatures(target, b"first", b"second")
    target.move_tags({old: extended}, expect={})
    plan = copy(stocked, target)
    assert (plan.signature_tags, target.resolve(old).digest) == ({}, extended.digest)
    assert plan.skipped == [
        f"{old} is not copied: it has a signature in {target.repository} that {stocked.repository} lacks; "
        "sign the version again there with cosign if a signature of the source is missing"
    ]
    complete = put_signatures(stocked, b"first", b"second", b"third")
    stocked.move_tags({old: complete}, expect={})
    assert not copy(stocked, target).skipped
    assert target.resolve(old).digest == complete.digest


def test_a_listed_referrer_that_is_missing_is_reported_and_omitted(store: LayoutStore, target: LayoutStore) -> None:
    missing = put_manifest(LayoutStore(target._path.parent / "elsewhere"), "lost")
    source = LyingStore(store._path, [missing])
    source.move_tags({"1.0.0": put_manifest(source, "one")}, expect={})
    plan = copy(source, target)
    assert target.tags() == ["1.0.0"]
    (message,) = plan.skipped
    assert missing.digest in message


class MovedDuringListing(LayoutStore):
    """A source whose channel is moved right after its tags were listed for the first time."""

    lists = 0

    def tags(self) -> list[str]:
        listed = super().tags()
        self.lists += 1
        if self.lists == 2:
            promote(LayoutStore(self._path), "1.0.0")
        return listed


def test_a_source_that_is_in_use_is_copied_in_a_consistent_state(stocked: LayoutStore, target: LayoutStore) -> None:
    copy(MovedDuringListing(stocked._path), target)
    assert channel.resolve(target, "prod").revision in (3, 4)
    copy(stocked, target)
    assert channel.resolve(target, "prod").revision == 4


class MovedDuringCopy(LayoutStore):
    """A destination whose channel is moved between the plan of a copy and its last step."""

    def move_tags(self, to: Mapping[str, Descriptor], *, expect: Mapping[str, str | None]) -> None:
        super().move_tags(to, expect=expect)
        if "_h.prod.000004" in to:
            promote(LayoutStore(self._path), "2.0.0")


def test_a_channel_that_another_client_moves_during_the_copy_is_not_overwritten(
    stocked: LayoutStore, target: LayoutStore
) -> None:
    copy(stocked, target)
    promote(stocked, "1.0.0")
    with pytest.raises(Conflict, match="was moved to revision 5"):
        copy(stocked, MovedDuringCopy(target._path))
    assert channel.resolve(target, "prod").version == "2.0.0"


def test_a_damaged_blob_is_not_copied(stocked: LayoutStore, target: LayoutStore) -> None:
    weights = max(manifest.parse_version(stocked.manifest(stocked.resolve("2.0.0").digest)).blobs, key=lambda blob: blob.size)
    path = stocked._blob_path(weights.digest)
    path.write_bytes(path.read_bytes()[::-1])
    with pytest.raises(Corrupt):
        copy(stocked, target)
    assert not target.has_blob(weights.digest)
    assert not set(target.tags()) & {"2.0.0", "prod"}


def test_an_empty_source_is_refused(store: LayoutStore, target: LayoutStore) -> None:
    put_manifest(store, "untagged")
    with pytest.raises(NotFound, match="has no content"):
        copy(store, target)


def test_a_channel_behind_its_history_is_refused(stocked: LayoutStore, target: LayoutStore) -> None:
    stocked.move_tags({"canary": stocked.resolve("2.0.0")}, expect={})
    with pytest.raises(Refused, match="no history entry records a move to it"):
        copy(stocked, target)


def test_an_interrupted_first_move_is_copied_as_a_history_without_a_channel(
    store: LayoutStore, target: LayoutStore, make_package: MakePackage
) -> None:
    push_versions(store, make_package, "1.0.0")
    promote(store, "1.0.0")
    index = store._path / "index.json"
    index.write_text(index.read_text().replace('"org.opencontainers.image.ref.name":"prod"', '"note":"untagged"'))
    assert copy(store, target).channels == []
    assert target.tags() == ["1.0.0", "_h.prod.000001"]


def test_the_plan_states_the_channel_that_it_replaces(stocked: LayoutStore, target: LayoutStore) -> None:
    copy(stocked, target)
    promote(stocked, "1.0.0")
    (planned,) = copy_repository.plan_copy(stocked, target).channels
    assert planned == replace(planned, replaced=target.resolve("prod").digest, newest=4)
