"""Where a partition begins: nothing goes missing in a partition that was added, or in a topic that was made again, and nothing
is scored twice because a group's positions are gone."""

from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import NewPartitions

from tests.integration.scorer.rig import MakeRig, Rig, ScorerProcess, until


def write(rig: Rig, count: int, partition: int, start: int = 0, topic: str = "") -> None:
    producer = Producer({"bootstrap.servers": rig.bootstrap_servers})
    for number in range(start, start + count):
        producer.produce(topic or rig.events_topic, b'{"id": "e%d", "a": %d, "b": 0}' % (number, number), partition=partition)
    assert producer.flush(30) == 0


def ids(rig: Rig) -> list[str]:
    return [record["id"] for record in rig.scores()]


def test_a_partition_that_is_added_later_begins_at_its_beginning(make_rig: MakeRig) -> None:
    rig = make_rig(input={"start": "latest"}).stocked(2)
    write(rig, 10, 0)
    scorer = rig.start().ready()
    until(lambda: len(rig.marks()) == 2, "the positions where it began")
    write(rig, 10, 0, start=10)
    until(lambda: rig.answered() == 10, "the scores")
    scorer.stop()
    rig.admin.create_partitions([NewPartitions(rig.events_topic, 4)])[rig.events_topic].result()
    until(lambda: len(rig.admin.list_topics(rig.events_topic, timeout=10).topics[rig.events_topic].partitions) == 4, "4")
    write(rig, 20, 3, start=20)
    write(rig, 5, 1, start=40)  # nothing was read of it yet: it continues where it began
    rig.start().ready()
    until(lambda: rig.answered() >= 35, "the events of the partition that was added")
    assert sorted(ids(rig)) == sorted(f"e{n}" for n in range(10, 45))


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_recreated_topic_is_read_from_its_beginning(make_rig: MakeRig, start: str) -> None:
    protocol = {"earliest": "classic", "latest": "consumer"}[start]
    rig = make_rig(input={"start": start}, kafka={"group_protocol": protocol}).stocked(2)
    scorer = rig.start().ready()
    until(lambda: len(rig.marks()) == 2, "the positions where it began")
    for partition in (0, 1):
        write(rig, 20, partition, start=100 * partition)
    until(lambda: rig.answered() == 40, "the scores")
    first = {row["topic_id"] for row in rig.swaps()}
    rig.make_again(rig.events_topic, 2)
    until(lambda: "recreated" in scorer.said, "the look that shows it")  # what is written before may be answered twice
    for partition in (0, 1):
        write(rig, 50, partition, start=1_000 + 100 * partition)
    until(lambda: rig.answered() >= 140, "the scores of the new topic")
    assert len(set(ids(rig))) == len(ids(rig)) == 140
    swaps = [row for row in rig.swaps() if row["topic_id"] not in first]
    assert [(row["partition"], row["cut_over_offset"]) for row in swaps] == [(0, 0), (1, 0)]
    assert sum(swaps[0]["scores_from"]) >= 40
    rig.assert_audited(events=100, gone=40)
    assert scorer.stop() == 0
    rig.make_again(rig.events_topic, 2)  # while no scorer runs
    write(rig, 30, 0, start=2_000)
    rig.start().ready()
    until(lambda: rig.answered() >= 170, "the scores of the newest topic")
    assert {f"e{n}" for n in range(2_000, 2_030)} <= set(ids(rig))
    assert len(ids(rig)) == 170
    rig.assert_audited(events=30, gone=140)


@pytest.mark.parametrize(("before", "after", "absent"), [(4, 2, False), (2, 4, True)])
def test_a_topic_recreated_with_other_partitions_is_read_and_the_others_continue(
    make_rig: MakeRig, unique: str, before: int, after: int, absent: bool
) -> None:
    other = f"{unique}.other"
    rig = make_rig(input={"topics": [f"{unique}.events", other]}).stocked(before)
    scorer = rig.start().ready()
    second = rig.start("b").ready()
    until(lambda: all(s.metric("scorer_assigned_partitions") == before for s in (scorer, second)), "half of them each")
    for partition in range(before):
        write(rig, 10, partition, start=100 * partition)
        write(rig, 10, partition, start=1_000 + 100 * partition, topic=other)
    expected_count = 20 * before
    until(lambda: rig.answered() == expected_count, "the scores")
    rig.delete(rig.events_topic)
    if absent:  # until the group has noticed
        until(lambda: sum(s.metric("scorer_assigned_partitions") for s in (scorer, second)) == before, "the others alone")
    else:
        rig.make_topic(rig.events_topic, after)
        until(lambda: "recreated" in scorer.said + second.said, "the look that shows it")
    lines, threads = len((scorer.said + second.said).splitlines()), threads_of(scorer) + threads_of(second)
    for partition in range(before):
        write(rig, 10, partition, start=2_000 + 100 * partition, topic=other)
    until(lambda: rig.answered() >= expected_count + 10 * before, "the scores of the other topic")
    if absent:
        rig.make_topic(rig.events_topic, after)
    for partition in range(after):
        write(rig, 10, partition, start=3_000 + 100 * partition)
    expected_count += 10 * before + 10 * after
    until(lambda: rig.answered() >= expected_count, "the scores of the new topic")
    assert scorer.deaths == second.deaths == 0
    assert len((scorer.said + second.said).splitlines()) < lines + 50
    assert threads_of(scorer) + threads_of(second) < threads + 20  # a client of Kafka has three or four
    assert len(set(ids(rig))) == len(ids(rig)) == expected_count


def threads_of(scorer: ScorerProcess) -> int:
    return len(list(Path(f"/proc/{scorer.worker}/task").iterdir()))


def test_expired_positions_are_reported_and_not_reset(make_rig: MakeRig) -> None:
    rig = make_rig().stocked(2)
    scorer = rig.start().ready()
    write(rig, 10, 0)
    until(lambda: rig.answered() == 10, "the scores")
    scorer.stop()
    offsets = rig.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(rig.name)])[rig.name].result()
    assert [p.leader_epoch for p in offsets.topic_partitions or [] if p.partition == 0] == [0]
    assert len({mark["topic_id"] for mark in rig.marks().values()} - {""}) == 1
    rig.admin.delete_consumer_groups([rig.name])[rig.name].result()
    assert (restarted := rig.start()).wait() == 3
    assert f"{rig.events_topic}[0] was scored" in restarted.said
    rig.run("scorer", "offsets", "scorer.yaml", "--topic", rig.events_topic, "--partition", "0", "--to", "10")
    write(rig, 5, 0, start=10)
    write(rig, 5, 1, start=20)  # nothing of it was scored before: it begins as a new one does
    rig.start().ready()
    until(lambda: rig.answered() >= 20, "the rest")
    assert sorted(ids(rig)) == sorted([f"e{n}" for n in range(15)] + [f"e{n}" for n in range(20, 25)])
    rig.assert_audited(events=20, gone=0)


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_topics_of_answers_recreated_with_fewer_partitions_are_written_to(make_rig: MakeRig, delivery: str) -> None:
    rig = make_rig(delivery=delivery, kafka={"transaction_timeout_ms": 3_000}).stocked(4)
    scorer = rig.start().ready()
    for partition in range(4):
        write(rig, 5, partition, start=100 * partition)
    until(lambda: rig.answered() == 20, "the scores")
    for topic in (rig.scores_topic, rig.dead_topic):
        rig.make_again(topic, 2)
    for partition in range(4):
        write(rig, 5, partition, start=1_000 + 100 * partition)
    rig.produce(b"no JSON", key=b"k")
    expected_ids = {f"e{1_000 + 100 * partition + n}" for partition in range(4) for n in range(5)}
    until(lambda: expected_ids <= set(ids(rig)), "the scores in the new topic")
    until(lambda: [letter["reason"] for letter in rig.dead()] != [], "the dead letter in the new topic")
    assert scorer.deaths == 0
    assert scorer.get("/readyz")[0] == 200
