"""Snapshots of topics on a real broker: frozen by offsets, copied to the byte, and refused where they cannot be whole."""

import json
import resource
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pytest
import yaml
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from publisher.errors import REFUSED, USAGE, Fatal
from scorer.settings import Settings
from tests.support.fixtures import MakeTopics
from tests.support.shared_broker import Broker
from tests.support.topics import settle
from tests.support.waiting import until
from training.settings import TrainingSettings, load
from training.snapshot import freeze as snapshot
from training.snapshot.files import Frozen, batches, path_of
from training.snapshot.freeze import copy, freeze

DAY_MS = 86_400_000
PARTITIONS = 3
COUNT = 300


class Stage(NamedTuple):
    """Topics with records in them, and the settings that name them. `now` is the freeze's."""

    settings: Settings
    training: TrainingSettings
    folder: Path
    now: int

    @property
    def topic(self) -> str:
        return self.settings.input.topics[0]

    @property
    def labels_topic(self) -> str:
        return str(self.settings.labels.topic)

    def frozen(self) -> Frozen:
        return freeze(self.settings, self.training, self.now)

    def write(self, topic: str, numbers: Sequence[int], ages_ms: Sequence[int], *, transaction: str = "") -> None:
        """Records of these numbers and ages; in a transaction that is aborted where one is named."""
        named = {"transactional.id": transaction} if transaction else {}
        producer = Producer({"bootstrap.servers": self.settings.kafka.bootstrap_servers, **named})
        if transaction:
            producer.init_transactions(30)
            producer.begin_transaction()
        for n, age in zip(numbers, ages_ms, strict=True):
            value = json.dumps({"id": f"e{n}", "a": float(n), "late": n % 2}).encode()
            producer.produce(topic, value, b"e%d" % n, n % PARTITIONS, timestamp=self.now - age, headers=[("n", b"%d" % n)])
        assert producer.flush(30) == 0
        if transaction:
            producer.abort_transaction(30)


@pytest.fixture
def stage(broker: Broker, make_topics: MakeTopics, tmp_path: Path) -> Stage:
    """300 events of the last 99 days, one every 8 hours, and their labels; the window is 90 days."""
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
    new_stage = Stage(settings, training, tmp_path / "snapshot", int(time.time() * 1_000))
    ages = np.linspace(99 * DAY_MS, 0, COUNT, dtype=np.int64).tolist()
    new_stage.write(events, range(COUNT), ages)
    new_stage.write(labels, range(COUNT), ages)
    return new_stage


def numbers(stage: Stage, frozen: Frozen, folder: Path) -> Iterator[int]:
    copied = copy(stage.settings, frozen, folder)
    for (_, partition), rows in batches(folder, copied, "events"):
        for key, headers, value in zip(rows["key"], rows["headers"], rows["value"], strict=True):
            number = int(headers[0][1])
            assert (key, number % PARTITIONS, json.loads(value)["a"]) == (b"e%d" % number, partition, number)
            yield number


def test_a_freeze_takes_the_events_of_the_window_and_every_label(stage: Stage) -> None:
    frozen = stage.frozen()
    event_numbers = sorted(numbers(stage, frozen, stage.folder))
    assert event_numbers == [n for n in range(COUNT) if 99 * (COUNT - 1 - n) / (COUNT - 1) <= 90]
    copied = copy(stage.settings, frozen, stage.folder)
    assert (copied.records("events"), copied.records("labels")) == (len(event_numbers), COUNT)
    assert (list(frozen.ids), frozen.now_ms) == ([stage.topic, stage.labels_topic], stage.now)
    assert msgspec.json.decode(msgspec.json.encode(frozen), type=Frozen) == frozen


def test_copies_of_a_freeze_are_the_same_to_the_byte_whatever_is_written_later(stage: Stage) -> None:
    stage.write(stage.topic, range(1_000, 1_030), [0] * 30, transaction=f"{stage.settings.name}.aborted")
    frozen = stage.frozen()
    first = copy(stage.settings, frozen, stage.folder)
    stage.write(stage.topic, range(COUNT, COUNT + 50), [0] * 50)
    stage.write(stage.labels_topic, range(50), [0] * 50)
    progress: list[tuple[int, int]] = []
    again = stage.folder.with_name("again")
    second = copy(stage.settings, frozen, again, lambda copied_records, of: progress.append((copied_records, of)))
    assert second == first
    contents = [sorted(p.read_bytes() for p in folder.rglob("*.parquet")) for folder in (stage.folder, again)]
    assert contents[0] == contents[1] != []
    assert [copied_records for copied_records, _ in progress] == sorted(copied_records for copied_records, _ in progress)
    assert (
        progress[-1][0] == second.records("events") + second.records("labels") < progress[-1][1]
    )  # aborted ones have offsets too
    assert copy(stage.settings, stage.frozen(), stage.folder).digest != first.digest


def test_a_complete_copy_is_reused_and_an_incomplete_one_is_recreated(stage: Stage, admin: AdminClient) -> None:
    frozen = stage.frozen()
    first = copy(stage.settings, frozen, stage.folder)
    path = stage.folder / path_of("events", (stage.topic, 0))
    path.write_bytes(path.read_bytes()[:-1])
    assert copy(stage.settings, frozen, stage.folder) == first
    settle(admin.delete_topics([stage.topic]))
    assert copy(stage.settings, frozen, stage.folder) == first


def test_files_of_a_killed_copy_are_not_reused(stage: Stage) -> None:
    frozen = stage.frozen()
    partial = stage.folder.with_name(f"{stage.folder.name}.part") / path_of("events", (stage.topic, 7))
    partial.parent.mkdir(parents=True)
    partial.write_bytes(b"PAR1")
    copied = copy(stage.settings, frozen, stage.folder)
    paths = {str(path.relative_to(stage.folder)) for path in stage.folder.rglob("*.parquet")}
    assert (paths, partial.parent.exists()) == (set(copied.files), False)


def test_offsets_that_retention_has_removed_are_named(stage: Stage, admin: AdminClient) -> None:
    frozen = stage.frozen()
    start, stop = frozen.events[stage.topic][1]
    settle(admin.delete_records([TopicPartition(stage.topic, 1, start + 7)]))
    with pytest.raises(Fatal) as raised:
        copy(stage.settings, frozen, stage.folder)
    message = (
        f"{stage.topic}[1] no longer has the snapshot's offsets {start} to {stop}: offsets {start} to {start + 7} were deleted"
    )
    assert (str(raised.value), raised.value.exit_code) == (message, REFUSED)
    assert not stage.folder.exists()


def test_a_recreated_topic_is_another_topic(stage: Stage, admin: AdminClient, make_topics: MakeTopics) -> None:
    frozen = stage.frozen()
    settle(admin.delete_topics([stage.topic]))
    until(lambda: stage.topic not in admin.list_topics(timeout=10).topics, "the topic's end")
    with pytest.raises(Fatal, match=f"topic {stage.topic} was deleted since") as raised:
        copy(stage.settings, frozen, stage.folder)
    make_topics("events", partitions=PARTITIONS)
    stage.write(stage.topic, range(COUNT), [0] * COUNT)
    with pytest.raises(Fatal, match=f"topic {stage.topic} was recreated since") as raised:
        copy(stage.settings, frozen, stage.folder)
    assert (raised.value.exit_code, raised.value.hint) == (REFUSED, snapshot.AGAIN)


def test_another_cluster_is_refused(stage: Stage) -> None:
    other = msgspec.structs.replace(stage.frozen(), cluster_id="other")
    with pytest.raises(Fatal, match="but the snapshot is of the cluster other") as raised:
        copy(stage.settings, other, stage.folder)
    assert raised.value.exit_code == REFUSED


def test_a_missing_topic_is_named(stage: Stage) -> None:
    labels = stage.settings.labels.model_copy(update={"topic": f"{stage.labels_topic}s"})
    with pytest.raises(Fatal, match=f"no topic '{stage.labels_topic}s'") as raised:
        freeze(stage.settings.model_copy(update={"labels": labels}), stage.training, stage.now)
    assert raised.value.exit_code == USAGE


def test_a_full_disk_is_reported_and_leaves_no_files(stage: Stage) -> None:
    frozen = stage.frozen()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, hard))
    try:
        with pytest.raises(Fatal) as raised:
            copy(stage.settings, frozen, stage.folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert f"the snapshot cannot be written to {stage.folder}: " in str(raised.value)
    assert (raised.value.exit_code, raised.value.hint) == (
        REFUSED,
        "check the disk space and the permissions, and run again",
    )
    assert [path.name for path in stage.folder.parent.iterdir() if path.is_dir()] == []
    assert copy(stage.settings, frozen, stage.folder).records("labels") == COUNT
