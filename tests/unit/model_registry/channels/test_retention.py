"""Pruning retains the versions that channels, their last moves and signatures need, and deletes others with their content."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_registry.channels import channel, retention
from model_registry.channels.history import ChannelMove
from model_registry.channels.move_request import MoveRequest
from model_registry.channels.retention import RepositorySnapshot, RetentionRules
from model_registry.errors import Conflict
from model_registry.oci import manifest, tags
from model_registry.signing import referrers
from model_registry.stores.base import Store
from model_registry.stores.oci_layout import LayoutStore
from tests.unit.model_registry import roles_index
from tests.unit.model_registry.conftest import NOW, MakePackage, promote, push_versions


@pytest.fixture
def versions(store: LayoutStore, make_package: MakePackage) -> dict[str, str]:
    """Push 1.0.0 to 5.0.0, each with different content, promote 1 to 4 one after the other, and return the digests."""
    snapshot = push_versions(store, make_package, *(f"{n}.0.0" for n in range(1, 6)))
    for version in list(snapshot)[:4]:
        promote(store, version)
    return snapshot


def pruned(store: Store, rules: RetentionRules, grace_seconds: float = 0.0) -> int | None:
    snapshot = retention.read_repository(store)
    return store.delete(
        retention.manifests_to_delete(store, retention.plan_removal(snapshot, rules)),
        expect=snapshot.tags,
        grace_seconds=grace_seconds,
    )


def blobs(store: LayoutStore) -> list[Path]:
    return list((store._path / "blobs" / "sha256").iterdir())


def complete(store: Store) -> bool:
    """Return whether all content that a tag refers to is stored completely."""
    for tag in store.tags():
        todo = [store.resolve(tag).digest]
        while todo:
            data = store.manifest(todo.pop())
            if manifest.is_index(data):
                todo += [entry.digest for entry in manifest.parse_index(data).manifests]
            else:
                for content in manifest.contents(data):
                    b"".join(store.blob(content))
    return True


def test_versions_behind_the_window_are_deleted_with_their_content(store: LayoutStore, versions: dict[str, str]) -> None:
    size_before = sum(path.stat().st_size for path in blobs(store))
    freed = pruned(store, RetentionRules(revisions=2))
    assert store.tags() == ["3.0.0", "4.0.0", "5.0.0", "_h.prod.000003", "_h.prod.000004", "prod"]
    assert complete(store)
    assert freed == size_before - sum(path.stat().st_size for path in blobs(store))
    assert not store.has_blob(versions["1.0.0"])
    assert channel.resolve(store, "prod").revision == 4
    assert channel.rollback(store, "prod", MoveRequest("", "", NOW)).to_version == "3.0.0"
    assert promote(store, "5.0.0").revision == 6


@pytest.mark.usefixtures("versions")
def test_versions_with_a_matching_name_a_role_or_another_channel_are_retained(store: LayoutStore) -> None:
    promote(store, "1.0.0", "prod.eu")
    roles_index.promote(store, ("champion", "4.0.0", 90), ("canary", "5.0.0", 10), ("shadow", "2.0.0", 0))
    pruned(store, RetentionRules(revisions=1, unpromoted=True))
    assert tags.versions(store.tags()) == ["1.0.0", "2.0.0", "4.0.0", "5.0.0"]
    promote(store, "4.0.0")
    pruned(store, RetentionRules(revisions=1, patterns=["2.*"]))
    assert tags.versions(store.tags()) == ["1.0.0", "2.0.0", "4.0.0"]
    pruned(store, RetentionRules(revisions=1))
    assert tags.versions(store.tags()) == ["1.0.0", "2.0.0", "4.0.0"], "a version without a known promotion is retained"
    pruned(store, RetentionRules(revisions=1, unpromoted=True))
    assert tags.versions(store.tags()) == ["1.0.0", "4.0.0"]
    assert complete(store)


def test_signatures_are_retained_and_deleted_with_their_version(store: LayoutStore, versions: dict[str, str]) -> None:
    attached = {v: referrers.attach(store, versions[v], "application/x.signature", v.encode(), {}) for v in ("1.0.0", "4.0.0")}
    pruned(store, RetentionRules(revisions=1))
    assert [tag for tag in store.tags() if tags.is_referrers(tag)] == [referrers.fallback_tag(versions["4.0.0"])]
    assert store.has_blob(attached["4.0.0"].digest)
    assert not store.has_blob(attached["1.0.0"].digest)
    assert complete(store)


@pytest.mark.usefixtures("versions")
def test_young_content_is_retained_for_a_push_in_flight(store: LayoutStore) -> None:
    count = len(blobs(store))
    assert pruned(store, RetentionRules(revisions=1), grace_seconds=3600) == 0
    assert len(blobs(store)) == count
    assert "1.0.0" not in store.tags()
    for path in blobs(store):
        os.utime(path, (1, 1))
    assert pruned(store, RetentionRules(revisions=1), grace_seconds=3600)
    assert complete(store)


def test_content_of_a_young_manifest_without_a_tag_is_retained(store: LayoutStore, versions: dict[str, str]) -> None:
    """Before a push moves its tag, all content is stored, some of it earlier, as part of a version that is deleted."""
    data = store.manifest(versions["1.0.0"])
    for path in blobs(store):
        os.utime(path, (1, 1))
    pushed = store.push_manifest(data.replace(b"1.0.0", b"9.0.0"))
    pruned(store, RetentionRules(revisions=1), grace_seconds=3600)
    store.move_tags({"9.0.0": pushed}, expect={"9.0.0": None})
    assert complete(store)


@pytest.mark.usefixtures("versions")
def test_nothing_is_deleted_after_a_tag_has_moved(store: LayoutStore) -> None:
    snapshot = retention.read_repository(store)
    deletions = retention.manifests_to_delete(store, retention.plan_removal(snapshot, RetentionRules(revisions=1)))
    promote(store, "1.0.0")
    with pytest.raises(Conflict, match="meanwhile"):
        store.delete(deletions, expect=snapshot.tags, grace_seconds=0)
    assert "2.0.0" in store.tags()
    assert complete(store)


@settings(max_examples=60)
@given(st.lists(st.integers(0, 5), max_size=12), st.integers(1, 6), st.booleans())
def test_the_channel_and_its_window_are_always_retained(promotions: Sequence[int], revisions: int, unpromoted: bool) -> None:
    digests = {f"{n}.0.0": f"sha256:{n:064x}" for n in range(6)}
    moves = [
        ChannelMove("prod", at, "", "", NOW, None, None, digests[f"{n}.0.0"], f"{n}.0.0") for at, n in enumerate(promotions, 1)
    ]
    named = digests | {tags.history_tag("prod", move.revision): f"sha256:{99 + move.revision:064x}" for move in moves}
    if moves:
        named["prod"] = moves[-1].to_digest
    plan = retention.plan_removal(
        RepositorySnapshot(named, {"prod": moves} if moves else {}, {}), RetentionRules(revisions, (), unpromoted)
    )
    window = moves[-revisions:]
    assert not set(plan.versions.values()) & {move.to_digest for move in window}
    assert set(plan.history) == {tags.history_tag("prod", move.revision) for move in moves[:-revisions]}
    removed = set(plan.versions)
    assert removed == {
        v
        for v, d in digests.items()
        if d not in {m.to_digest for m in window} and (unpromoted or d in {m.to_digest for m in moves})
    }
