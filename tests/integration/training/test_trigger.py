"""The trigger of runs by event, on a real broker: KEDA's own arithmetic on the broker's offsets of labels and their group."""

import contextlib
import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from publisher.kafka.connection import ANSWER_SECONDS
from scorer.settings import Settings
from tests.chaos.training.ground import EVENTS, Ground
from tests.packaging.deploy.test_training import trigger
from tests.support.fixtures import MakeTopics
from tests.support.shared_broker import Broker
from tests.support.topics import settle
from tests.support.waiting import until
from training.publish.commit_label_offsets import commit, group_of
from training.settings import TrainingSettings, load
from training.snapshot.files import Frozen
from training.snapshot.freeze import freeze

PARTITIONS = 3
TRIGGER_METADATA = trigger()
ENOUGH = int(TRIGGER_METADATA["activationLagThreshold"]) + 1
"""Labels, the fewest that begin a run."""
NEVER = -1
"""The position of a partition that nobody has committed."""


def lag_of(ends: Mapping[int, int], committed: Mapping[int, int], metadata: Mapping[str, str]) -> int:
    """The lag by partition, added up as KEDA 2.17 does (pkg/scalers/kafka_scaler.go, getLagForPartition). Pure."""
    total = 0
    for partition, end in ends.items():
        if committed[partition] != NEVER:
            total += end - committed[partition]
        elif metadata["scaleToZeroOnInvalidOffset"] == "false":
            total += end if metadata["offsetResetPolicy"] == "earliest" else 1
    return total


def runs_to_start(lag: int, metadata: Mapping[str, str], running: int = 0, max_replicas: int = 1) -> int:
    """How many runs KEDA begins (pkg/scaling/scaledjob/metrics.go; the strategy `default` of pkg/scaling/executor). Pure."""
    active = lag > int(metadata["activationLagThreshold"])
    return max(0, math.ceil(min(lag / int(metadata["lagThreshold"]), max_replicas)) - running) if active else 0


class Stage(NamedTuple):
    """Topics of events and labels. What a run does for the trigger is `freeze`, then `commit`."""

    settings: Settings
    training: TrainingSettings
    admin: AdminClient

    @property
    def topic(self) -> str:
        return str(self.settings.labels.topic)

    @property
    def group(self) -> str:
        return group_of(self.settings)

    def write(self, count: int, *, transaction: str = "") -> None:
        """Labels; in a transaction, where one is named."""
        named = {"transactional.id": transaction} if transaction else {}
        producer = Producer({"bootstrap.servers": self.settings.kafka.bootstrap_servers, **named})
        if transaction:
            producer.init_transactions(30)
            producer.begin_transaction()
        for number in range(count):
            producer.produce(self.topic, b'{"late": true}', b"e%d" % number, number % PARTITIONS)
        assert producer.flush(30) == 0
        if transaction:
            producer.commit_transaction(30)

    def freeze(self) -> Frozen:
        return freeze(self.settings, self.training, time.time_ns() // 1_000_000)

    def commit(self, frozen: Frozen) -> None:
        """Where the labels of a snapshot end, as the last step of a run does."""
        commit(self.settings, frozen)

    def expire(self) -> None:
        """What `offsets.retention.minutes` does to a group without members: its offsets are deleted."""
        settle(self.admin.delete_consumer_groups([self.group]))

    def lag(self) -> int:
        """Asked of the broker as KEDA asks: up to the end, decided or not."""
        partitions = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
        properties = {"group.id": self.group, "isolation.level": "read_uncommitted"}
        servers = {"bootstrap.servers": self.settings.kafka.bootstrap_servers}
        with contextlib.closing(Consumer({**servers, **properties})) as consumer:  # it waits for leaders and coordinators
            ends = {
                partition.partition: consumer.get_watermark_offsets(partition, timeout=ANSWER_SECONDS)[1]
                for partition in partitions
            }
            committed = consumer.committed(partitions, timeout=ANSWER_SECONDS)
        return lag_of(ends, {position.partition: max(position.offset, NEVER) for position in committed}, TRIGGER_METADATA)

    @property
    def begins(self) -> bool:
        return runs_to_start(self.lag(), TRIGGER_METADATA) == 1


@pytest.fixture
def stage(broker: Broker, admin: AdminClient, make_topics: MakeTopics, tmp_path: Path) -> Stage:
    events, labels, scores = make_topics("events", "labels", "scores", partitions=PARTITIONS)
    scorer = {
        "name": events.removesuffix(".events"),
        "kafka": {"bootstrap_servers": broker.bootstrap_servers},
        "input": {"topics": [events], "id": "id"},
        "output": {"topic": scores},
        "model": {"source": "oci:./registry/model"},
        "labels": {"topic": labels, "value": "late"},
    }
    (tmp_path / "scorer.yaml").write_text(yaml.safe_dump(scorer))
    (tmp_path / "training.yaml").write_text(yaml.safe_dump({"scorer": "scorer.yaml"}))
    training, settings = load(tmp_path / "training.yaml")
    return Stage(settings, training, admin)


def test_a_group_that_never_was_counts_from_the_beginning(stage: Stage) -> None:
    stage.write(ENOUGH - 1)
    assert (stage.lag(), stage.begins) == (ENOUGH - 1, False)
    stage.write(1)
    assert (stage.lag(), stage.begins) == (ENOUGH, True)


def test_a_run_takes_the_labels_that_it_froze_and_no_others(stage: Stage) -> None:
    stage.write(ENOUGH)
    frozen = stage.freeze()
    stage.write(100)
    assert stage.begins
    stage.commit(frozen)
    assert (stage.lag(), stage.begins) == (100, False)
    stage.write(ENOUGH - 100)
    assert stage.begins
    stage.commit(stage.freeze())
    assert (stage.lag(), stage.begins) == (0, False)


def test_expired_offsets_start_one_run_that_finds_no_new_labels_and_commits_again(stage: Stage) -> None:
    stage.write(ENOUGH)
    last = stage.freeze()
    stage.commit(last)
    stage.expire()
    assert (stage.lag(), stage.begins) == (ENOUGH, True)
    frozen = stage.freeze()
    assert frozen.spans("labels") == last.spans("labels")
    stage.commit(frozen)
    assert (stage.lag(), stage.begins) == (0, False)


def test_a_run_that_finds_nothing_new_commits_again(broker: Broker, admin: AdminClient, tmp_path: Path, unique: str) -> None:
    ground = Ground(broker.bootstrap_servers, tmp_path / unique, None, 2013, champion=False)
    training, settings = load(ground.folder / "training.yaml")
    stage = Stage(settings, training, admin)
    assert outcome(ground) == "promoted"
    assert stage.lag() == 0
    stage.expire()
    assert stage.lag() == EVENTS
    assert outcome(ground) == "nothing-new"
    assert stage.lag() == 0


def outcome(ground: Ground) -> str:
    run = ground.training("run")
    output, _ = run.communicate(timeout=120)
    assert run.returncode == 0, (ground.folder / "log").read_text()
    return str(json.loads(output)["outcome"])


def test_labels_that_retention_has_removed_count_for_a_group_without_offsets(stage: Stage) -> None:
    """KEDA looks at ends only. The run that follows commits, also where no label is left."""
    stage.write(ENOUGH)
    ends = [TopicPartition(*partition, stop) for partition, (_, stop) in stage.freeze().spans("labels").items()]
    settle(stage.admin.delete_records(ends))
    assert stage.begins
    stage.commit(stage.freeze())
    assert (stage.lag(), stage.begins) == (0, False)


def test_markers_of_transactions_begin_no_run(stage: Stage) -> None:
    for number in range(5):
        stage.write(PARTITIONS, transaction=f"{stage.group}.{number}")
    until(lambda: stage.lag() == 5 * 2 * PARTITIONS, "the markers")
    until(lambda: sum(stop for _, stop in stage.freeze().spans("labels").values()) == stage.lag(), "what readers see")
    stage.commit(stage.freeze())
    assert (stage.lag(), stage.begins) == (0, False)


def test_one_run_at_a_time_however_many_labels_there_are() -> None:
    assert runs_to_start(ENOUGH - 1, TRIGGER_METADATA) == 0
    assert [runs_to_start(ENOUGH * times, TRIGGER_METADATA) for times in (1, 2, 1_000)] == [1, 1, 1]
    assert [runs_to_start(ENOUGH * times, TRIGGER_METADATA, running=1) for times in (1, 2, 1_000)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("changed", "lag"),
    [({}, 12), ({"offsetResetPolicy": "latest"}, 4), ({"scaleToZeroOnInvalidOffset": "true"}, 3)],
)
def test_other_settings_would_not_see_labels_of_a_group_without_offsets(changed: dict[str, str], lag: int) -> None:
    assert lag_of({0: 9, 1: 5}, {0: NEVER, 1: 2}, {**TRIGGER_METADATA, **changed}) == lag
