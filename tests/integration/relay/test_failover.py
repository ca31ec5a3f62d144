"""`publisher failover` between two real clusters: a consumer group continues in the other where it stopped, and returns."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.integration.relay.counting import header
from tests.integration.relay.rig import MakeRelay, RelayRig
from tests.support import auditor
from tests.support.processes import command
from tests.support.waiting import until

UNREACHABLE = "127.0.0.1:1"


def commit(servers: str, group: str, positions: dict[tuple[str, int], int]) -> None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(*p, at, mark(servers, p[0])) for p, at in positions.items()], asynchronous=False)
    consumer.close()


def mark(servers: str, topic: str) -> str:
    return json.dumps({"revision": 7, "topic_id": topic_id_of(servers, topic)})


def committed(servers: str, group: str) -> dict[tuple[str, int], tuple[int, str | None]]:
    admin = AdminClient({"bootstrap.servers": servers})
    offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result()
    return {(p.topic, p.partition): (p.offset, p.metadata) for p in offsets.topic_partitions or []}


@contextmanager
def member(servers: str, group: str, topic: str) -> Iterator[None]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    consumer.subscribe([topic])
    until(lambda: (consumer.poll(0.1), consumer.assignment())[1] != [], "the assignment")
    try:
        yield
    finally:
        consumer.close()


def outward(make_relay: MakeRelay) -> tuple[RelayRig, str, str]:
    """A relay that follows a group: the rig, the group, the name of the copies."""
    rig = make_relay(destination={"topic": "{region}.{topic}"})
    group = f"{rig.name}-scorers"
    rig.configure(source={"groups": [group]})
    rig.create(rig.source)
    return rig, group, f"eu.{rig.topic}"


def homeward(make_relay: MakeRelay, outward_rig: RelayRig, group: str) -> RelayRig:
    rig = make_relay(source={"groups": [group]}, destination={"topic": "{region}.{topic}"})
    rig.turn_round(outward_rig.topic)
    return rig


def complete(rig: RelayRig) -> bool:
    """Return True if the relay has recorded beside its checkpoints that everything was copied."""
    checkpoints = [m for m in auditor.read(rig.destination, f"{rig.name}.checkpoints") if (m.key() or b"").endswith(b"/source")]
    return bool(checkpoints) and json.loads(checkpoints[-1].value() or b"")["complete_ms"] > 0


def origins(servers: str, topic: str, partition: int) -> list[tuple[int, str]]:
    """The records of a partition: their offsets, and where each was first written."""
    rows = (m for m in auditor.read(servers, topic) if m.partition() == partition)
    return [(m.offset() or 0, header(m, "x-origin").decode()) for m in rows]


def test_a_group_continues_in_the_other_region_and_returns(make_relay: MakeRelay) -> None:
    rig, group, copies = outward(make_relay)
    rig.fill(400)
    commit(rig.source, group, {(rig.topic, p): 60 + p for p in range(4)})
    relay = rig.start().ready()
    rig.wait_copied(400, copies)
    until(lambda: complete(rig), "a sighting of all that is there")
    with member(rig.destination, group, copies):
        assert f"group {group} has members in us" in rig.run("failover", "--to", "us", "--yes", code=3).stderr
    assert "no consumer group was moved" in rig.run("failover", "--to", "us", code=3).stderr
    dry_run = rig.run("failover", "--to", "us", "--dry-run", "--set", f"source.bootstrap_servers={UNREACHABLE}")
    assert "eu does not answer" in dry_run.stderr
    assert "the copy in us lacks at most the records that eu received in the last" in dry_run.stderr
    assert all(f"{60 + p} in" in dry_run.stdout for p in range(4))
    assert committed(rig.destination, group) == {}
    plan = rig.json("failover", "--to", "us", "--yes")
    assert (plan["moved"], plan["source_answers"], plan["lag_records"]) == (True, True, 0)
    moved = committed(rig.destination, group)
    assert {metadata for _, metadata in moved.values()} == {mark(rig.destination, copies)}
    for (topic, partition), (offset, _) in moved.items():
        first = next(origin for at, origin in origins(rig.destination, topic, partition) if at >= offset)
        assert (topic, first) == (copies, f"eu/{rig.topic}/{partition}/{60 + partition}")
    assert relay.stop() == 0
    audit = audited(rig, group, copies, {place: offset for place, (offset, _) in moved.items()})
    assert audit["clean"]
    assert (audit["events"], audit["answered"], audit["rescored"]) == (400, 400, sum(80 - 60 - p for p in range(4)))
    assert audit["gone"] == 2  # an answer in each region to the topic before
    comes_back(homeward(make_relay, rig, group), rig, group, copies, moved[copies, 0][0])


def comes_back(back: RelayRig, rig: RelayRig, group: str, copies: str, first: int) -> None:
    """The way home, from where the group has gone on in the other region: there from copy `first` of partition 0."""
    back.create(back.source)
    back.fill(400)
    ends = {(copies, 0): first + 10, (copies, 1): 10_000, **{(rig.topic, p): 100 for p in range(4)}}
    ends[copies, 1] = max(m.offset() or 0 for m in auditor.read(rig.destination, copies) if m.partition() == 1) + 1
    commit(rig.destination, group, ends)
    relay = back.start().ready()
    back.wait_copied(400, f"us.{rig.topic}")
    with member(back.source, group, rig.topic):
        assert f"group {group} has members in us" in back.run("failover", "--to", "eu", "--yes", code=3).stderr
        assert list(back.json("failover", "--to", "eu", "--dry-run")["active_members"]) == ["us"]
    plan = back.json("failover", "--to", "eu", "--yes")
    assert (plan["moved"], plan["source_answers"], plan["lag_records"], plan["lag_scored"]) == (True, True, 0, 0)
    at_home = committed(back.destination, group)
    assert {metadata for _, metadata in at_home.values()} == {mark(back.destination, topic) for topic, _ in at_home}
    home = {place: offset for place, (offset, _) in at_home.items()}
    assert [home[rig.topic, p] for p in range(4)] == [70, 100, 62, 63]
    for p in range(4):
        us = f"us.{back.topic}"
        before = [origin for at, origin in origins(back.destination, us, p) if at < home[us, p]]
        assert before[-1] == f"us/{rig.topic}/{p}/99"
    again = back.json("failover", "--to", "eu", "--dry-run")
    assert [move["before"] for move in again["moves"]] == [move["after"] for move in again["moves"]]
    assert relay.stop() == 0


def audited(rig: RelayRig, group: str, copies: str, moved: dict[tuple[str, int], int]) -> Any:
    """What `scorer audit` counts over both regions, where eu has answered 80 events of each partition, and us those copies
    that the group was moved to and all that follow."""
    in_us = [m for m in auditor.read(rig.destination, copies) if (m.offset() or 0) >= moved[copies, m.partition() or 0]]
    answers: dict[str, tuple[str, str, list[tuple[Any, Any, str]]]] = {
        "eu": (rig.source, rig.topic, [(p, at, f"eu/{rig.topic}/{p}/{at}") for p in range(4) for at in range(80)]),
        "us": (rig.destination, copies, [(m.partition(), m.offset(), header(m, "x-origin").decode()) for m in in_us]),
    }
    paths = []
    for region, (servers, events, rows) in answers.items():
        names = {kind: f"{rig.name}.{kind}" for kind in ("answers", "dead")}
        swaps = f"{group}.swaps"
        for name in (*names.values(), swaps):
            rig.create(servers, name, 1)
        producer = Producer({"bootstrap.servers": servers})
        for topic_id in ("before", topic_id_of(servers, events)):
            swap = {"topic": events, "partition": 0, "cut_over_offset": 0, "revision": 1, "digest": "sha256:a"}
            begins = {"topic_id": topic_id, "scores_from": [1], "letters_from": [0]}
            producer.produce(swaps, json.dumps(swap | begins))
        for partition, offset, origin in [(0, rows[0][1], "of the topic before"), *rows]:
            source = {"topic": events, "partition": partition, "offset": offset}
            producer.produce(names["answers"], json.dumps({"id": origin, "region": region, "source": source}))
        assert producer.flush(30) == 0
        paths.append(rig.folder / f"scorer-{region}.yaml")
        configuration = {
            "kafka": {"bootstrap_servers": servers},
            "input": {"topics": [events]},
            "region": region,
            "name": group,
        }
        topics = {"output": {"topic": names["answers"]}, "dead_letter": {"topic": names["dead"]}}
        paths[-1].write_text(yaml.safe_dump({**configuration, **topics, "model": {"source": "oci:./registry/model"}}))
    assert_surviving_region_names_copies(paths[-1])
    output = subprocess.run([command("scorer"), "audit", *map(str, paths), "--json"], capture_output=True, check=True).stdout
    return json.loads(output)


def assert_surviving_region_names_copies(configuration: Path) -> None:
    """The audit of the surviving region alone reports that all its missing events are copies from the lost region."""
    audit = subprocess.run([command("scorer"), "audit", str(configuration), "--json"], capture_output=True, check=False)
    report = json.loads(audit.stdout)
    assert audit.returncode == 1
    assert report["copies"] == report["events"] == 400
    assert 0 < report["missing"] == report["missing_copies"] < 400


def topic_id_of(servers: str, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": servers})
    return str(admin.describe_topics(TopicCollection([topic]))[topic].result().topic_id)
