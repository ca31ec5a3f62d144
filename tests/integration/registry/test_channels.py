"""Channels in a real registry: moved, gone back from, pruned, and races that are lost."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from model_registry.channels import channel, prune
from model_registry.channels.history import Move
from model_registry.channels.prune import Rules
from model_registry.errors import Conflict
from model_registry.oci import tags
from model_registry.stores.remote import RemoteStore
from model_registry.trust import referrers
from tests.unit.model_registry.conftest import NOW, MakePackage, onnx_bytes, promote, push_versions
from tests.unit.model_registry.verbs import run

pytestmark = pytest.mark.debian("docker-registry")

VERSIONS = ("1.0.0", "2.0.0", "3.0.0")


@pytest.fixture
def digests(remote: RemoteStore, make_package: MakePackage) -> dict[str, str]:
    """Three versions, by digest."""
    return push_versions(remote, make_package, *VERSIONS)


def test_prune_deletes_only_what_no_kept_tag_names(remote: RemoteStore, digests: dict[str, str]) -> None:
    """The registry drops every tag of a digest at once."""
    for version in VERSIONS:
        promote(remote, version)
    remote.move_tags({"2.0.0-again": remote.resolve("2.0.0")}, expect={})
    for version in VERSIONS:
        referrers.attach(remote, digests[version], "application/x.signature", version.encode(), {})
    found = prune.survey(remote)
    plan = prune.plan(found, Rules(revisions=1, patterns=["*-again"]))
    assert set(plan.versions) == {"1.0.0"}
    assert remote.delete(prune.manifests(remote, plan), expect=found.tags, grace_seconds=0) is None
    left = remote.tags()
    assert tags.versions(left) == ["2.0.0", "2.0.0-again", "3.0.0"]
    assert tags.revisions(left, "prod") == [3]
    assert sorted(tag for tag in left if tags.is_referrers(tag)) == sorted(
        referrers.fallback_tag(digests[version]) for version in ("2.0.0", "3.0.0")
    )
    assert channel.resolve(remote, "prod").revision == 3


def test_a_tag_that_is_moved_between_two_deletions_protects_its_manifest(remote: RemoteStore, digests: dict[str, str]) -> None:
    for version in VERSIONS:
        promote(remote, version)
    found = prune.survey(remote)
    going = prune.manifests(remote, prune.plan(found, Rules(revisions=1)))
    assert going[:2] == [digests["1.0.0"], digests["2.0.0"]]

    def deleted() -> Iterator[str]:
        yield going[0]
        channel.rollback(remote, "prod", actor="op", reason="in a hurry", now=NOW)
        yield from going[1:]

    with pytest.raises(Conflict, match="meanwhile"):
        remote.delete(deleted(), expect=found.tags, grace_seconds=0)
    assert channel.resolve(remote, "prod").digest == digests["2.0.0"]
    assert tags.versions(remote.tags()) == ["2.0.0", "3.0.0"]


@pytest.mark.usefixtures("digests")
def test_two_who_move_at_once_never_leave_a_channel_that_does_not_resolve(remote: RemoteStore) -> None:
    made: list[Move] = []
    lost: list[Conflict] = []
    together = threading.Barrier(2)

    def mover(version: str) -> None:
        for _ in range(5):
            together.wait(30)
            try:
                made.append(promote(remote, version))
            except Conflict as error:
                lost.append(error)

    movers = [threading.Thread(target=mover, args=(version,)) for version in VERSIONS[:2]]
    for thread in movers:
        thread.start()
    for thread in movers:
        thread.join()
    assert len(made) + len(lost) == 10
    assert channel.resolve(remote, "prod").version in VERSIONS[:2]
    assert promote(remote, "3.0.0").revision == max(move.revision for move in made) + 1
    assert channel.resolve(remote, "prod").version == "3.0.0"


def test_the_verbs_in_a_registry(
    repository: str, make_package: MakePackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for version in VERSIONS[:2]:
        make_package(version, model=onnx_bytes(version.encode()))
        run("--plain-http", "push", version, f"{repository}:{version}")

    def answer(verb: str, *arguments: str) -> str:
        return run("--plain-http", "--timeout", "10", verb, repository, "--json", *arguments).stdout

    answer("promote", "--to", "1.0.0")
    assert json.loads(answer("promote", "--to", "2.0.0"))["revision"] == 2
    assert json.loads(answer("rollback"))["to_version"] == "1.0.0"
    assert [move["revision"] for move in json.loads(answer("history"))["moves"]] == [1, 2, 3]
    assert len(answer("watch", "--since", "1", "--count", "2").splitlines()) == 2
    assert json.loads(answer("status"))["channels"][0]["version"] == "1.0.0"
    assert json.loads(answer("list"))["versions"][0]["channels"] == ["prod"]
    run("--plain-http", "pull", f"{repository}:prod", "out")
    assert (tmp_path / "out" / "model.onnx").read_bytes() == onnx_bytes(b"1.0.0")
    assert json.loads(answer("prune", "--keep-revisions", "1", "--yes"))["freed"] is None
    assert [v["version"] for v in json.loads(answer("list"))["versions"]] == ["1.0.0"]
