"""Publishing a run to a real registry and a real broker: killed anywhere and by two at once, each thing is there once."""

import multiprocessing
import uuid
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import yaml

from model_registry.channels import channel, retention
from model_registry.channels.retention import RetentionRules
from model_registry.errors import NotFound, Refused
from model_registry.oci import reference, tags
from model_registry.oci.manifest import Descriptor
from model_registry.stores.http_client import OciResponse
from model_registry.stores.oci_layout import LayoutStore
from model_registry.stores.oci_registry import RemoteStore
from publisher.errors import REFUSED, USAGE, Fatal
from publisher.kafka.connection import connect
from publisher.kafka.groups import ConsumerGroups, GroupPosition
from scorer.rollout.controller import log_topic
from scorer.rollout.controller.log_records import Verb
from scorer.settings import Settings, load
from tests.integration.registry.conftest import AT_ONCE, PLAIN, registry, remote, repository
from tests.integration.registry.server import DockerRegistry
from tests.support.attested import CHAMPION, RUN
from tests.support.fixtures import MakeTopics
from tests.support.publishing import AT, KEYS, VERSION, check_once, copied, folder, origin, publish, records, snapshot
from tests.support.shared_broker import Broker
from tests.support.topics import admin
from tests.support.waiting import until
from tests.unit.model_registry.conftest import MakePackage, make_package, onnx_bytes, promote
from training.publish import commit_label_offsets
from training.publish.promote import ComparedChampion, Overtaken, Promoted, judged_by, standing
from training.publish.push_version import push, version_of
from training.publish.start_rollout import begin_once
from training.publish.verify_lineage import evidence
from training.snapshot import dataset
from training.snapshot.files import Copied, Frozen, verified

__all__ = ["copied", "folder", "make_package", "records", "registry", "remote", "repository"]

OTHER = "ba9876543210"
in_registry = pytest.mark.debian("docker-registry")


class Killed(BaseException):
    """The process was killed at a write."""


class Dying(RemoteStore):
    """A registry whose writer dies right before its nth write: a blob, a manifest or one tag. `writes` counts them."""

    at, writes = 0, 0

    def push_blob(self, content: Descriptor, stream: BinaryIO) -> None:
        self._count()
        super().push_blob(content, stream)

    def _put(self, name: str, media_type: str, data: bytes) -> OciResponse:
        self._count()
        return super()._put(name, media_type, data)

    def _count(self) -> None:
        self.writes += 1
        if self.writes == self.at:
            raise Killed


@in_registry
def test_a_killed_run_publishes_each_artifact_once(
    registry: DockerRegistry, folder: Path, records: Path, copied: Copied
) -> None:
    """At every eighth write, and at each of the last ones, which are the signature's list, the history and the channel."""
    store = Dying(new_repository(registry), PLAIN, AT_ONCE)
    publish(store, folder, records, copied)
    assert store.writes > 30
    for at in [*range(1, store.writes - 3, 8), *range(store.writes - 3, store.writes + 1)]:
        dying = Dying(new_repository(registry), PLAIN, AT_ONCE)
        dying.at = at
        with pytest.raises(Killed):
            publish(dying, folder, records, copied)
        resumed = RemoteStore(reference.parse(dying.repository), PLAIN, AT_ONCE)
        assert isinstance(publish(resumed, folder, records, copied), Promoted)
        check_once(resumed)


def new_repository(registry: DockerRegistry) -> reference.ModelReference:
    return reference.parse(f"{registry.address}/team/m{uuid.uuid4().hex[:12]}")


@in_registry
def test_concurrent_processes_of_a_run_publish_each_artifact_once(
    remote: RemoteStore, folder: Path, records: Path, copied: Copied
) -> None:
    context = multiprocessing.get_context("spawn")
    place = remote.repository
    processes = [context.Process(target=publish_at, args=(place, folder, records, copied)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 3
    check_once(remote)


def publish_at(place: str, folder: Path, records: Path, copied: Copied) -> None:
    publish(RemoteStore(reference.parse(place), PLAIN), folder, records, copied)


@in_registry
def test_a_second_run_judges_again_if_the_channel_moved_meanwhile(
    remote: RemoteStore, folder: Path, records: Path, copied: Copied, make_package: MakePackage
) -> None:
    publish(remote, folder, records, copied)
    judged = judged_by(standing(remote, "prod"))
    promote(remote, VERSION, reason="by hand, again")
    other = make_package("other", model=onnx_bytes(b"other"))
    overtaken = publish(remote, other, records, copied, judged, OTHER)
    assert isinstance(overtaken, Overtaken)
    assert overtaken.by is not None
    again = publish(remote, other, records, copied, judged_by(overtaken.by), OTHER)
    assert isinstance(again, Promoted)
    move_evidence = evidence(remote, again.move.champion, KEYS, AT, before=again.move.revision)
    assert move_evidence.champion is not None
    assert (move_evidence.champion.revision, move_evidence.champion.digest) == (2, judged.digest)
    assert [move.reason for move in channel.history(remote, "prod")] == [f"run {RUN}", "by hand, again", f"run {OTHER}"]
    with pytest.raises(Refused, match="exists with other content"):
        push(remote, folder, version_of(OTHER, AT), origin(copied, OTHER))


@in_registry
def test_a_dataset_comes_back_from_a_registry_and_goes_with_a_refused_challenger(
    remote: RemoteStore, folder: Path, records: Path, copied: Copied, make_package: MakePackage, tmp_path: Path
) -> None:
    publish(remote, folder, records, copied)
    champion_dataset = dataset.of_version(remote, remote.resolve(VERSION).digest)
    assert dataset.pull(remote, champion_dataset, tmp_path / "back") == copied
    assert verified(tmp_path / "back", copied.frozen) == copied
    other = make_package("other", model=onnx_bytes(b"other"))
    theirs = snapshot(tmp_path / "theirs", b"theirs")
    with pytest.raises(Refused, match="is not signed"):
        publish(remote, other, tmp_path / "theirs", theirs, ComparedChampion(CHAMPION, 1), OTHER, verdict="refused")
    refused_digest = remote.resolve(version_of(OTHER, AT)).digest
    deleted = dataset.of_version(remote, refused_digest)
    repository = retention.read_repository(remote)
    plan = retention.plan_removal(repository, RetentionRules(unpromoted=True))
    assert list(plan.versions.values()) == [refused_digest]
    remote.delete(retention.manifests_to_delete(remote, plan), expect=repository.tags, grace_seconds=0)
    for digest in (refused_digest, deleted):
        with pytest.raises(NotFound):
            remote.manifest(digest)
    assert tags.versions(remote.tags()) == [VERSION]
    check_once(remote)
    assert dataset.of_version(remote, remote.resolve(VERSION).digest) == champion_dataset


@pytest.fixture
def settings(broker: Broker, make_topics: MakeTopics, tmp_path: Path) -> Settings:
    """A scorer with a folder as its registry, and all topics that a rollout needs."""
    config = {"cleanup.policy": "compact"}
    events, labels, scores, _ = make_topics("events", "labels", "scores", "scores.shadow", partitions=2)
    (rollouts,) = make_topics("rollouts", partitions=1, config=config)
    scorer = {
        "name": rollouts.removesuffix(".rollouts"),
        "kafka": {"bootstrap_servers": broker.bootstrap_servers},
        "input": {"topics": [events], "id": "id"},
        "output": {"topic": scores},
        "model": {"source": "oci:./registry/flight-delay"},
        "labels": {"topic": labels, "value": "late"},
    }
    (tmp_path / "scorer.yaml").write_text(yaml.safe_dump(scorer))
    client = admin(broker.bootstrap_servers)
    needed = {events, labels, scores, rollouts, f"{scores}.shadow"}
    until(lambda: needed <= client.list_topics(timeout=10).topics.keys(), "the topics")
    return load(tmp_path / "scorer.yaml").settings


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.yaml"
    path.write_text(yaml.safe_dump({"steps": [{"shadow": "100%", "bake": "1m"}, {"promote": True}]}))
    return path


@pytest.fixture
def rivals(tmp_path: Path, folder: Path, copied: Copied, make_package: MakePackage) -> tuple[LayoutStore, str]:
    """A champion in the channel, and a version of this run beside it."""
    store = LayoutStore(tmp_path / "registry" / "flight-delay")
    push(store, make_package("by-hand", model=onnx_bytes(b"by hand")), "1.0.0", origin(copied, OTHER))
    promote(store, "1.0.0")
    return store, push(store, folder, VERSION, origin(copied)).digest


def begin(settings: Settings, plan: Path, digest: str, judged: ComparedChampion, run: str = RUN) -> str | Overtaken:
    return begin_once(settings, plan, VERSION, digest, judged, run, "training@host")


def test_a_run_starts_one_rollout_beside_the_champion_that_it_was_judged_against(
    settings: Settings, plan: Path, rivals: tuple[LayoutStore, str]
) -> None:
    store, digest = rivals
    judged = judged_by(standing(store, "prod"))
    name = begin(settings, plan, digest, judged)
    assert isinstance(name, str)
    assert begin(settings, plan, digest, judged) == name
    with log_topic.open_log(settings) as ledger:
        (rollout,) = ledger.rollouts.values()
    assert (rollout.rivals.candidate.version, rollout.rivals.candidate.digest) == (VERSION, digest)
    assert (rollout.rivals.champion.digest, rollout.base) == (judged.digest, judged.revision)
    assert (rollout.log[0].why, rollout.log[0].by) == ([f"run {RUN}"], "training@host")
    with pytest.raises(Fatal, match=f"the rollout {name} of {VERSION} is still running") as caught:
        begin(settings, plan, digest, judged, OTHER)
    assert caught.value.exit_code == REFUSED
    log_topic.send_command(settings, rollout, Verb.PAUSE, "op", "")
    promote(store, "1.0.0", reason="again")
    assert begin(settings, plan, digest, judged) == name, "it was begun, whatever happened since"
    overtaken = begin(settings, plan, digest, judged, OTHER)
    assert isinstance(overtaken, Overtaken)
    assert judged_by(overtaken.by) == ComparedChampion(judged.digest, 2)


def test_two_processes_start_one_rollout(settings: Settings, plan: Path, rivals: tuple[LayoutStore, str]) -> None:
    store, digest = rivals
    judged = judged_by(standing(store, "prod"))
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=begin, args=(settings, plan, digest, judged)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    with log_topic.open_log(settings) as ledger:
        assert len(ledger.rollouts) == 1


def test_a_rollout_that_cannot_start_reports_the_reason(
    settings: Settings, plan: Path, rivals: tuple[LayoutStore, str]
) -> None:
    store, digest = rivals
    judged = judged_by(standing(store, "prod"))
    with pytest.raises(Fatal, match="but this run pushed"):
        begin(settings, plan, CHAMPION, judged)
    nothing = settings.model_copy(update={"model": settings.model.model_copy(update={"tag": "new"})})
    with pytest.raises(Fatal, match="has no version to compare"):
        begin(nothing, plan, digest, ComparedChampion())
    plan.write_text("steps: []")
    with pytest.raises(Fatal) as wrong:
        begin(settings, plan, digest, judged)
    assert wrong.value.exit_code == USAGE
    plan.write_text(yaml.safe_dump({"candidate": "other", "steps": [{"promote": True}]}))
    assert isinstance(begin(settings, plan, digest, judged), str)
    with log_topic.open_log(settings) as ledger:
        assert [rollout.plan.candidate for rollout in ledger.rollouts.values()] == [VERSION]


def frozen(settings: Settings, *ends: int) -> Frozen:
    return Frozen(1, "c", {}, {}, {str(settings.labels.topic): [(0, end) for end in ends]})


def committed(settings: Settings) -> list[tuple[int, int]]:
    groups = ConsumerGroups(connect(settings.kafka, "test"), settings.kafka, "the broker", 10.0)
    return [(position.partition, position.next) for position in groups.positions(f"{settings.name}.training")]


def test_the_offsets_of_the_triggers_group_are_the_ends_of_the_labels_and_never_decrease(settings: Settings) -> None:
    positions: list[Any] = [
        commit_label_offsets.commit(settings, frozen(settings, *ends)) for ends in ((5, 0), (5, 0), (3, 9), (7, 7))
    ]
    assert [position.next for position in positions[2]] == [5, 9]
    assert positions[3] == tuple(GroupPosition(str(settings.labels.topic), at, end) for at, end in ((0, 7), (1, 9)))
    assert committed(settings) == [(0, 7), (1, 9)]
