"""Partitions that no broker leads, on three real brokers of which one is down: the scorer holds those that it reads, goes on
with the others, and waits for those that it writes to."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from tests.campaigns.cluster import Cluster
from tests.integration.scorer.rig import Rig, ScorerProcess, until
from tests.support import models
from tests.support.waiting import STEP_SECONDS

ALONE = {"min.insync.replicas": "1"}
ROOM = {"max.message.bytes": "2000000"}  # for dead letters: more than an event's


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with contextlib.closing(Cluster(3, heap_mb=256)) as made:
        yield made.start()


@pytest.fixture
def rig(cluster: Cluster, tmp_path: Path, unique: str) -> Iterator[Rig]:
    cluster.whole()
    with contextlib.closing(Rig(cluster.bootstrap_servers, tmp_path, unique)) as made:
        made.push(models.linear_package(tmp_path / "one", 2.0), "1.0.0")
        made.promote("1.0.0")
        yield made


def spread(rig: Rig, topic: str, **config: str) -> None:
    """Make a topic whose partitions 0, 1, 2 have their only replicas on nodes 1, 2, 3; and all others, replicated."""
    plan = NewTopic(topic, 3, replica_assignment=[[1], [2], [3]], config=ALONE | config)
    rig.admin.create_topics([plan])[topic].result()
    rig.create(3)


def write(rig: Rig, start: int, *partitions: int, value: bytes = b'{"id": "e%d", "a": 1, "b": 0}') -> None:
    producer = Producer({"bootstrap.servers": rig.bootstrap_servers})
    for place, partition in enumerate(partitions):
        for number in range(start + 10 * place, start + 10 * (place + 1)):
            producer.produce(rig.events_topic, value % number, b"%d" % number, partition=partition)
    assert producer.flush(STEP_SECONDS) == 0


def lose_node_3(cluster: Cluster, rig: Rig, topic: str) -> None:
    """Kill it, and wait until its partition of the topic has no leader."""
    cluster.nodes[2].kill()
    until(lambda: rig.admin.list_topics(topic, timeout=10).topics[topic].partitions[2].leader < 0, "a partition without leader")


def paused(scorer: ScorerProcess, rig: Rig, partition: int) -> bool:
    return f'scorer_partition_paused{{partition="{partition}",topic="{rig.events_topic}"}} 1.0' in scorer.get("/metrics")[1]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_one_without_a_position_is_held_and_the_others_go_on(cluster: Cluster, rig: Rig, start: str) -> None:
    rig.configure(input={"start": start})
    spread(rig, rig.events_topic)
    lose_node_3(cluster, rig, rig.events_topic)
    scorer = rig.start().ready()
    until(lambda: len(rig.marks()) == 2, "the positions where the others begin")
    write(rig, 0, 0, 1)
    until(lambda: rig.answered() == 20, "the scores of the others")
    until(lambda: paused(scorer, rig, 2), "the alarm")
    assert f"{rig.events_topic}[2] has no leader" in scorer.said

    cluster.nodes[2].start()
    write(rig, 20, 2)
    until(lambda: rig.answered() == 30, "the scores of the one that was held")
    until(lambda: not paused(scorer, rig, 2), "the end of the alarm")
    rig.assert_clean(events=30, scored=30)
    assert scorer.stop() == 0


WRITTEN: list[Callable[[Rig], str]] = [lambda rig: rig.scores_topic, lambda rig: rig.dead_topic]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("named", WRITTEN, ids=["output", "dead-letter"])
def test_one_that_is_written_to_is_waited_for(cluster: Cluster, rig: Rig, named: Callable[[Rig], str]) -> None:
    topic = named(rig)
    spread(rig, topic, **ROOM if topic == rig.dead_topic else {})
    scorer = rig.start().ready()
    event = b"no event %d" if topic == rig.dead_topic else b'{"id": "e%d", "a": 1, "b": 0}'
    write(rig, 0, 0, 1, 2, value=event)
    until(lambda: rig.answered() == 30, "the answers before")
    lose_node_3(cluster, rig, topic)
    write(rig, 30, 0, 1, 2, value=event)
    until(lambda: "has no leader" in scorer.said or "whether transactions are open is not known" in scorer.said, "the wait")
    assert scorer.get("/livez")[0] == 200

    cluster.nodes[2].start()
    until(lambda: rig.answered() == 60, "the answers after")
    rig.assert_clean(events=60)
    assert scorer.stop() == 0
