"""Records of the product's own topics, and commit metadata, that cannot be read: counted, named and skipped, on a real broker.

Whoever may write to these topics can write anything. No scorer and no command ends because of it.
"""

import json
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition

from tests.integration.scorer.rig import MakeRig, Rig, events, until
from tests.support.hostile_records import BYTES, ESCAPES, LITERALS

COUNT = 20
DEEP = LITERALS["deep array"]
KINDS = ("deep array", "deep object", "shallow array", "400 digits", "5,000 digits", "invalid UTF-8", "NaN", "null", "binary")
METADATA = '{"another":' + "[" * 1_900 + "]" * 1_900 + "}"  # 3.8 kB; Kafka takes 4,096 bytes


def test_unreadable_records_end_no_scorer_and_no_command(make_rig: MakeRig) -> None:
    rig = make_rig().stocked(2)
    commit(rig, METADATA)
    for topic in (f"{rig.name}.swaps", f"{rig.name}.status", f"{rig.name}.rollouts"):
        write(rig, topic, f"{rig.name}.a".encode())
    scorer = rig.start().ready()
    rig.emit(events(COUNT))
    rig.produce(b"{", key=ESCAPES.encode())
    until(lambda: rig.answered() == COUNT + 1, "all answers")
    assert scorer.metric("scorer_unreadable_records_total") > len(KINDS), "one of the group's commits, and the swaps"
    write(rig, rig.scores_topic, b"k")
    write(rig, f"{rig.name}.swaps", b"k")
    for check in (of_status, of_lineage, of_tail, of_audit, of_rollout):
        check(rig)
    assert scorer.stop() == 0, scorer.said


def commit(rig: Rig, metadata: str) -> None:
    """Commit the start of partition 0 for the group of scorers, as any client may that reads in that group."""
    position = TopicPartition(rig.events_topic, 0, 0, metadata)
    rig.admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(rig.name, [position])])[rig.name].result()


def write(rig: Rig, topic: str, key: bytes) -> None:
    producer = Producer({"bootstrap.servers": rig.bootstrap_servers, "message.max.bytes": 2_000_000})
    for kind in KINDS:
        producer.produce(topic, BYTES[kind], key, partition=0)
    assert producer.flush(20) == 0


def of_status(rig: Rig) -> None:
    (replica,) = json.loads(rig.run("scorer", "status", "scorer.yaml", "--json").stdout)["scorers"]
    assert (replica["scorer"], replica["state"]) == (f"{rig.name}.a", "running")


def of_lineage(rig: Rig) -> None:
    score = next(each for each in scores(rig) if each["source"]["partition"] == 0)
    place = "{topic}/{partition}/{offset}".format(**score["source"])
    completed = rig.run("scorer", "lineage", "scorer.yaml", place, "--json")
    lineage = json.loads(completed.stdout)
    assert lineage["answer"]["score"] == score["score"]
    assert [line for line in lineage["not_known"] if "unreadable records" in line], lineage["not_known"]
    assert f"{rig.name}.swaps[0]@" in completed.stderr
    (dead,) = rig.dead()
    for flags in ((), ("--json",)):
        output = rig.run("scorer", "lineage", "scorer.yaml", dead["source"], *flags).stdout
        assert not {"\x1b", "\x9b", "\u202e", "\x07"} & set(output)
        assert "[31m" in output


def of_tail(rig: Rig) -> None:
    completed = rig.run("scorer", "tail", "scorer.yaml", "--no-follow")
    records = [json.loads(line) for line in completed.stdout.splitlines()]
    assert sum(isinstance(each, dict) and "score" in each for each in records) == COUNT
    assert f"{rig.scores_topic}[0]@" in completed.stderr
    dead = rig.run("scorer", "tail", "scorer.yaml", "--no-follow", "--dead").stdout
    assert not {"\x1b", "\x9b", "\u202e"} & set(dead)


def of_audit(rig: Rig) -> None:
    """They are a fault, each with its position, and hide no other count."""
    report = json.loads(rig.run("scorer", "audit", "scorer.yaml", "--json", code=1).stdout)
    assert (report["scored"], report["missing"], report["unreadable"]) == (COUNT, 0, 3 * len(KINDS))
    assert report["examples"]["unreadable"]


def of_rollout(rig: Rig) -> None:
    assert "no rollout" in rig.run("scorer", "rollout", "status", "scorer.yaml", code=None).stderr


def scores(rig: Rig) -> list[dict[str, Any]]:
    lines = rig.run("scorer", "tail", "scorer.yaml", "--no-follow").stdout.splitlines()
    return [record for line in lines if isinstance(record := json.loads(line), dict)]
