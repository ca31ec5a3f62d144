"""Partitions that no broker leads, on three real brokers of which one is down: the scorer holds those that it reads, goes on
with the others, and waits for those that it writes to."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import NewTopic

from tests.chaos.cluster import Cluster
from tests.integration.scorer.rig import Rig, ScorerProcess, until
from tests.support import models
from tests.support.waiting import STEP_SECONDS

ALONE = {"min.insync.replicas": "1"}
ROOM = {"max.message.bytes": "2000000"}  # for dead letters: more than an event's


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with contextlib.closing(Cluster(3, heap_mb=256)) as started:
        yield started.start()


@pytest.fixture
def make(cluster: Cluster, tmp_path: Path, unique: str) -> Iterator[Callable[[str], Rig]]:
    """Gives a scorer's surroundings by a name, with a version in production."""
    cluster.whole()
    with contextlib.ExitStack() as opened:

        def made(name: str) -> Rig:
            folder = tmp_path / name
            folder.mkdir()
            rig = opened.enter_context(contextlib.closing(Rig(cluster.bootstrap_servers, folder, f"{unique}-{name}")))
            rig.push(models.linear_package(folder / "one", 2.0), "1.0.0")
            rig.promote("1.0.0")
            return rig

        yield made


def spread(rig: Rig, topic: str, **config: str) -> None:
    """Make a topic whose partitions 0, 1, 2 have their only replicas on nodes 1, 2, 3; and all others, replicated."""
    plan = NewTopic(topic, 3, replica_assignment=[[1], [2], [3]], config=ALONE | config)

    def made() -> bool:
        try:
            rig.admin.create_topics([plan])[topic].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.INVALID_REPLICA_ASSIGNMENT:  # a broker that was slow is fenced for a while
                raise
            return False
        return True

    until(made, "all brokers")
    rig.create(3)


def write(rig: Rig, start: int, *partitions: int, value: bytes = b'{"id": "e%d", "a": 1, "b": 0}') -> None:
    producer = Producer({"bootstrap.servers": rig.bootstrap_servers})
    for place, partition in enumerate(partitions):
        for number in range(start + 10 * place, start + 10 * (place + 1)):
            producer.produce(rig.events_topic, value % number, b"%d" % number, partition=partition)
    assert producer.flush(STEP_SECONDS) == 0


def lose_node_3(cluster: Cluster, *topics: tuple[Rig, str]) -> None:
    """Kill it, and wait until its partitions of these topics have no leader."""
    cluster.nodes[2].kill()
    for rig, topic in topics:
        until(partial(leads_none, rig, topic), "a partition without leader")


def leads_none(rig: Rig, topic: str) -> bool:
    return rig.admin.list_topics(topic, timeout=10).topics[topic].partitions[2].leader < 0


def has_marks(rig: Rig, count: int) -> bool:
    return len(rig.marks()) == count


def wait_for_answers(rig: Rig, count: int) -> None:
    until(lambda: rig.answered() == count, f"{count} answers")


def paused(scorer: ScorerProcess, rig: Rig, partition: int) -> bool:
    return f'scorer_partition_paused{{partition="{partition}",topic="{rig.events_topic}"}} 1.0' in scorer.get("/metrics")[1]


def continues(scorer: ScorerProcess, rig: Rig, partition: int) -> bool:
    return not paused(scorer, rig, partition)


def waits(scorer: ScorerProcess) -> bool:
    return "no broker leads" in scorer.said or "it is unknown whether transactions are open" in scorer.said


@pytest.mark.timeout(600)
def test_a_partition_without_a_position_is_held_and_the_others_continue(cluster: Cluster, make: Callable[[str], Rig]) -> None:
    rigs = [make(start) for start in ("earliest", "latest")]
    for rig in rigs:
        rig.configure(input={"start": rig.folder.name})
        spread(rig, rig.events_topic)
    lose_node_3(cluster, *((rig, rig.events_topic) for rig in rigs))
    running = [(rig, rig.start()) for rig in rigs]
    for rig, scorer in running:
        scorer.ready()
        until(partial(has_marks, rig, 2), "the positions where the others begin")
        write(rig, 0, 0, 1)
    for rig, scorer in running:
        wait_for_answers(rig, 20)
        until(partial(paused, scorer, rig, 2), "the alarm")
        assert f"no broker leads {rig.events_topic}[2]" in scorer.said

    cluster.nodes[2].start()
    for rig, _ in running:
        write(rig, 20, 2)
    for rig, scorer in running:
        wait_for_answers(rig, 30)
        until(partial(continues, scorer, rig, 2), "the end of the alarm")
        rig.assert_clean(events=30, scored=30)
        assert scorer.stop() == 0


@pytest.mark.timeout(600)
def test_an_output_partition_is_waited_for(cluster: Cluster, make: Callable[[str], Rig]) -> None:
    scores, letters = make("scores"), make("dead")
    spread(scores, scores.scores_topic)
    spread(letters, letters.dead_topic, **ROOM)
    running = [
        (scores, scores.start(), b'{"id": "e%d", "a": 1, "b": 0}'),
        (letters, letters.start(), b"no event %d"),
    ]
    for rig, scorer, event in running:
        scorer.ready()
        write(rig, 0, 0, 1, 2, value=event)
    for rig, _, _ in running:
        wait_for_answers(rig, 30)
    lose_node_3(cluster, (scores, scores.scores_topic), (letters, letters.dead_topic))
    for rig, _, event in running:
        write(rig, 30, 0, 1, 2, value=event)
    for _, scorer, _ in running:
        until(partial(waits, scorer), "the wait")
        assert scorer.get("/livez")[0] == 200

    cluster.nodes[2].start()
    for rig, scorer, _ in running:
        wait_for_answers(rig, 60)
        rig.assert_clean(events=60)
        assert scorer.stop() == 0
