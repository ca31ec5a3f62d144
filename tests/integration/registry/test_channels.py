"""Channels in a real registry: moves, rollbacks, pruning, and lost races."""

import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from model_registry.channels import channel, retention
from model_registry.channels.history import EVIDENCE_TYPE, ChannelMove
from model_registry.channels.move_request import MoveRequest
from model_registry.channels.retention import RetentionRules
from model_registry.channels.signed_move import SignedMoveAdmission
from model_registry.errors import Conflict, Refused, Unreachable
from model_registry.oci import manifest, tags
from model_registry.oci.digests import from_bytes
from model_registry.signing import referrers
from model_registry.signing.policy import Policy
from model_registry.stores.oci_registry import RemoteStore
from tests.unit.model_registry.conftest import NOW, MakePackage, promote, push_versions
from tests.unit.model_registry.keyring import ONE, TWO, trusted

pytestmark = pytest.mark.debian("docker-registry")

VERSIONS = ("1.0.0", "2.0.0", "3.0.0")


@pytest.fixture
def digests(remote: RemoteStore, make_package: MakePackage) -> dict[str, str]:
    return push_versions(remote, make_package, *VERSIONS)


def test_a_channel_that_moves_and_returns_between_two_polls_is_reported(remote: RemoteStore, digests: dict[str, str]) -> None:
    """Its tag names the same manifest as before."""
    promote(remote, "1.0.0")
    looks = []

    def pause(failed: object) -> None:
        looks.append(failed)
        assert len(looks) < 3, "the moves were not seen"
        promote(remote, "2.0.0")
        channel.rollback(remote, "prod", MoveRequest("op", "", NOW))

    moves = list(islice(channel.watch(remote, "prod", 1, pause), 2))
    assert [(move.revision, move.to_digest) for move in moves] == [(2, digests["2.0.0"]), (3, digests["1.0.0"])]
    assert looks == [None]


def test_a_signed_move_is_verified_and_stays_verified_when_versions_are_pruned(
    remote: RemoteStore, digests: dict[str, str], tmp_path: Path
) -> None:
    promote(remote, "1.0.0", key=ONE)
    promote(remote, "2.0.0", canary=5, key=ONE)
    policy = Policy(tmp_path, False, (), frozenset(), signed_moves=True, move_keys=tuple(trusted(ONE)))
    gate = SignedMoveAdmission(policy, tmp_path)
    assert gate.check(remote, "prod", channel.resolve(remote, "prod"), NOW) == "key-1"
    survey = retention.read_repository(remote)
    going = retention.manifests_to_delete(remote, retention.plan_removal(survey, RetentionRules(revisions=1)))
    remote.delete(going, expect=survey.tags, grace_seconds=0)
    assert gate.check(remote, "prod", channel.resolve(remote, "prod"), NOW) == "key-1"
    back = promote(remote, "1.0.0", key=TWO)
    with pytest.raises(Refused, match="the signature is not from a trusted key"):
        gate.check(remote, "prod", channel.resolve(remote, "prod"), NOW)
    assert [move.revision for move in channel.iter_completed(remote, "prod", back.revision)] == [2]
    assert digests["1.0.0"] == back.to_digest


def test_a_decision_is_stored_with_its_move(remote: RemoteStore, digests: dict[str, str]) -> None:
    promote(remote, "1.0.0")
    document = b'{"why":["every rule is within its margin"]}'
    move = promote(remote, "2.0.0", canary=5, pairs=20, evidence=document)
    assert move.evidence == from_bytes(document)
    assert channel.history(remote, "prod")[-1] == move
    assert b"".join(remote.blob(manifest.describe_content(EVIDENCE_TYPE, document))) == document
    resolved = channel.resolve(remote, "prod")
    assert [(role.version, role.weight, role.pairs) for role in resolved.roles] == [("1.0.0", 95, 0), ("2.0.0", 5, 20)]
    survey = retention.read_repository(remote)
    going = retention.manifests_to_delete(remote, retention.plan_removal(survey, RetentionRules(revisions=1)))
    assert remote.delete(going, expect=survey.tags, grace_seconds=0) is None
    assert channel.history(remote, "prod") == [move]
    assert digests["1.0.0"] == resolved.digest


def test_prune_deletes_only_what_no_kept_tag_names(remote: RemoteStore, digests: dict[str, str]) -> None:
    """The registry drops every tag of a digest at once."""
    for version in VERSIONS:
        promote(remote, version)
    remote.move_tags({"2.0.0-again": remote.resolve("2.0.0")}, expect={})
    for version in VERSIONS:
        referrers.attach(remote, digests[version], "application/x.signature", version.encode(), {})
    repository = retention.read_repository(remote)
    plan = retention.plan_removal(repository, RetentionRules(revisions=1, patterns=["*-again"]))
    assert set(plan.versions) == {"1.0.0"}
    assert remote.delete(retention.manifests_to_delete(remote, plan), expect=repository.tags, grace_seconds=0) is None
    remaining = remote.tags()
    assert tags.versions(remaining) == ["2.0.0", "2.0.0-again", "3.0.0"]
    assert tags.revisions(remaining, "prod") == [3]
    assert sorted(tag for tag in remaining if tags.is_referrers(tag)) == sorted(
        referrers.fallback_tag(digests[version]) for version in ("2.0.0", "3.0.0")
    )
    assert channel.resolve(remote, "prod").revision == 3


def test_a_tag_that_is_moved_between_two_deletions_protects_its_manifest(remote: RemoteStore, digests: dict[str, str]) -> None:
    for version in VERSIONS:
        promote(remote, version)
    repository = retention.read_repository(remote)
    manifests = retention.manifests_to_delete(remote, retention.plan_removal(repository, RetentionRules(revisions=1)))
    assert manifests[:2] == [digests["1.0.0"], digests["2.0.0"]]

    def deleted() -> Iterator[str]:
        yield manifests[0]
        channel.rollback(remote, "prod", MoveRequest("op", "in a hurry", NOW))
        yield from manifests[1:]

    with pytest.raises(Conflict, match="meanwhile"):
        remote.delete(deleted(), expect=repository.tags, grace_seconds=0)
    assert channel.resolve(remote, "prod").digest == digests["2.0.0"]
    assert tags.versions(remote.tags()) == ["2.0.0", "3.0.0"]


@pytest.mark.usefixtures("digests")
def test_concurrent_moves_never_leave_a_channel_that_does_not_resolve(remote: RemoteStore) -> None:
    moves: list[ChannelMove] = []
    errors: list[Conflict | Unreachable] = []
    together = threading.Barrier(2)

    def mover(version: str) -> None:
        for _ in range(5):
            together.wait(30)
            try:
                moves.append(promote(remote, version))
            except (Conflict, Unreachable) as error:  # the registry cannot tell a move that was undone from a late one
                errors.append(error)

    movers = [threading.Thread(target=mover, args=(version,)) for version in VERSIONS[:2]]
    for thread in movers:
        thread.start()
    for thread in movers:
        thread.join()
    assert len(moves) + len(errors) == 10
    assert channel.resolve(remote, "prod").version in VERSIONS[:2]
    assert promote(remote, "3.0.0").revision == max(move.revision for move in moves) + 1
    assert channel.resolve(remote, "prod").version == "3.0.0"
