"""A scorer waits for unavailable dependencies: alive, not ready, with the reason; then each event is answered once."""

import contextlib
import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from scorer.demo.broker.embedded import EmbeddedBroker
from scorer.demo.broker.kraft_config import HOST, free_ports
from tests.chaos.proxy import Proxies
from tests.integration.scorer.rig import MakeRig, Rig, ScorerProcess, command, events, until
from tests.integration.scorer.schema_registry import OneSchema


def waits_for(scorer: ScorerProcess, dependency: str) -> None:
    until(
        lambda: scorer.get("/readyz")[0] == 503 and f"{dependency}: " in scorer.get("/readyz")[1], f"the wait for {dependency}"
    )
    assert scorer.get("/livez")[0] == 200
    assert f'scorer_away{{what="{dependency}"}} 1.0' in scorer.get("/metrics")[1]
    assert scorer.process.poll() is None


def test_a_start_waits_for_brokers_and_the_model_registry_and_can_be_stopped(make_rig: MakeRig) -> None:
    rig = make_rig().stocked()
    registry, moved = rig.folder / "registry", rig.folder / "registry-away"
    registry.rename(moved)
    door = Proxies(1)
    readable = ("--set", "log.format=text", "--set", "log.level=debug")
    scorer, stopped = (
        rig.start(name, "--set", f"kafka.bootstrap_servers={HOST}:{port}", *flags)
        for name, port, flags in (("a", door.ports[0], ()), ("b", free_ports()[0], readable))
    )
    waits_for(scorer, "brokers")
    waits_for(stopped, "brokers")
    messages = [line for line in stopped.said.splitlines() if "no Kafka broker answers" in line]
    assert len(messages) == 1
    assert "check kafka.bootstrap_servers" in messages[0]
    assert stopped.stop() == 0

    door.connect([int(rig.bootstrap_servers.rpartition(":")[2])])
    waits_for(scorer, "model-registry")
    until(lambda: [row["state"] for row in rig.fleet()] == ["waiting"], "the status record")
    (row,) = rig.fleet()
    assert row["waiting"].startswith("model-registry: ")
    assert "a: waiting: model-registry: " in rig.run("scorer", "status", "scorer.yaml", "--wide").stdout
    moved.rename(registry)
    scorer.ready()
    rig.emit(events(20))
    until(lambda: rig.answered() == 20, "the scores")
    assert scorer.stop() == 0
    door.close()


def committed(rig: Rig) -> int:
    return sum(mark["offset"] for mark in rig.marks().values())


@pytest.fixture(scope="module")
def brittle() -> Iterator[EmbeddedBroker]:
    """A broker that a test may kill; it is missed, and back, within seconds."""
    with EmbeddedBroker(properties={"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "300"}) as started:
        yield started


def test_brokers_that_are_killed_and_come_back_cost_nothing_but_time(
    brittle: EmbeddedBroker, tmp_path: Path, unique: str
) -> None:
    """With a scorer of each way of delivery."""
    with contextlib.ExitStack() as closing:
        rigs = []
        for delivery in ("exactly-once", "at-least-once"):
            (folder := tmp_path / delivery).mkdir()
            rigs.append(Rig(brittle.bootstrap_servers, folder, f"{unique}-{delivery}", delivery=delivery))
            closing.callback(rigs[-1].close)
        scorers = [rig.stocked().start().ready() for rig in rigs]
        for rig in rigs:
            rig.emit(events(100))
            until(lambda rig=rig: rig.answered() == 100, "the scores before")  # type: ignore[misc]
            until(lambda rig=rig: committed(rig) == 100, "their positions: else they are scored again")  # type: ignore[misc]
        brittle.kill()
        for scorer in scorers:
            waits_for(scorer, "brokers")
        brittle.restart()
        for rig, scorer in zip(rigs, scorers, strict=True):
            scorer.ready()
            rig.emit(events(100, start=100))
            until(lambda rig=rig: rig.answered() == 200, "the scores after")  # type: ignore[misc]
            rig.assert_clean(events=200, scored=200)
            assert scorer.stop() == 0


def test_emit_that_loses_its_broker_counts_uncertain_events_and_a_second_signal_ends_the_wait(
    brittle: EmbeddedBroker, tmp_path: Path, unique: str
) -> None:
    with contextlib.closing(Rig(brittle.bootstrap_servers, tmp_path, unique)) as rig:
        rig.make_topic(rig.events_topic, 1)
        arguments = [command("scorer"), "emit", "scorer.yaml", "--json"]
        with subprocess.Popen(
            arguments, cwd=rig.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as emitting:
            assert emitting.stdin
            assert emitting.stdout
            assert emitting.stderr
            stdin = emitting.stdin

            def feed(start: int, count: int) -> None:
                stdin.write(b"".join(json.dumps(event).encode() + b"\n" for event in events(count, start=start)))
                stdin.flush()

            feed(0, 30)
            until(lambda: sum(rig.ends().values()) == 30, "the events")
            brittle.pause()
            try:
                feed(30, 10)
                while emitting.poll() is None:  # the first is the request to end, a later one ends the wait
                    emitting.send_signal(signal.SIGTERM)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        emitting.wait(1)
            finally:
                brittle.resume()
            counts, message = json.loads(emitting.stdout.read()), emitting.stderr.read().decode()
        assert (emitting.returncode, counts["written"], counts["skip"], counts["repeated"]) == (143, 30, 30, 0)
        assert counts["uncertain"] + counts["rejected"] <= 10
        assert "interrupted: 30 events were written" in message
        assert rig.emit(events(1, start=40)) == 1
        assert 31 <= sum(rig.ends().values()) <= 31 + counts["uncertain"]


def test_another_consumer_joins_a_group_that_the_broker_has_forgotten(
    brittle: EmbeddedBroker, tmp_path: Path, unique: str
) -> None:
    """As after some restarts of a broker (GROUP_ID_NOT_FOUND): that consumer will never be a member again."""
    kafka = {"group_protocol": "consumer"}
    with contextlib.closing(Rig(brittle.bootstrap_servers, tmp_path, unique, kafka=kafka)) as rig:
        scorer = rig.stocked().start().ready()
        until(lambda: scorer.metric("scorer_assigned_partitions") == 4, "the partitions")
        brittle.kill()
        for log in brittle.folder.glob("**/__consumer_offsets-*"):
            shutil.rmtree(log)
        brittle.restart()
        until(lambda: "the consumer group rejects this member" in scorer.said, "the refusal")
        rig.emit(events(50))
        until(lambda: rig.answered() == 50, "the scores")
        assert scorer.stop() == 0


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_topic_that_is_recreated_after_its_leaders_changed_is_read(
    brittle: EmbeddedBroker, tmp_path: Path, unique: str, protocol: str
) -> None:
    """Its leader epochs are lower than those of the old one."""
    with contextlib.closing(Rig(brittle.bootstrap_servers, tmp_path, unique, kafka={"group_protocol": protocol})) as rig:
        scorer = rig.stocked().start().ready()
        rig.emit(events(50))
        until(lambda: rig.answered() == 50, "the scores before")
        brittle.kill()
        brittle.restart()
        scorer.ready()
        rig.emit(events(50, start=50))
        until(lambda: rig.answered() == 100, "the scores between")
        rig.make_again(rig.events_topic, 4)
        rig.emit(events(50, start=100))
        until(lambda: rig.answered() == 150, "the scores of the new topic")
        assert scorer.stop() == 0


def test_brokers_that_come_back_at_other_addresses_are_found(tmp_path: Path, unique: str) -> None:
    """As after a move to other machines: only the addresses from the bootstrap servers are still right."""
    doors, listens = Proxies(3), free_ports()[0]
    bootstrap, first, second = doors.ports

    def listeners(ports: tuple[int, int]) -> dict[str, str]:
        listener = f"PLAINTEXT://{HOST}:{ports[0]}"
        return {
            "listeners": f"{listener},MOVED://{HOST}:{listens},CONTROLLER://{HOST}:{ports[1]}",
            "advertised.listeners": f"{listener},MOVED://{HOST}:{first}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,MOVED:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "broker.session.timeout.ms": "2000",
            "broker.heartbeat.interval.ms": "300",
        }

    with EmbeddedBroker(properties=listeners) as broker, contextlib.closing(doors):
        rig = Rig(broker.bootstrap_servers, tmp_path, unique).stocked()
        with contextlib.closing(rig):
            doors.connect([listens, listens, 0])
            rig.configure(kafka={"bootstrap_servers": f"{HOST}:{bootstrap}"})
            scorer = rig.start().ready()
            rig.configure(kafka={"bootstrap_servers": broker.bootstrap_servers})
            rig.emit(events(50))
            until(lambda: rig.answered() == 50, "the scores before")
            broker.kill()
            doors.connect([listens, 0, listens])
            configuration = broker.folder / "server.properties"
            configuration.write_text(configuration.read_text().replace(f"MOVED://{HOST}:{first}", f"MOVED://{HOST}:{second}"))
            broker.restart()
            rig.emit(events(50, start=50))
            until(lambda: rig.answered() == 100, "the scores after")
            rig.assert_clean(events=100, scored=100)
            assert scorer.stop() == 0


def test_an_unavailable_schema_registry_is_waited_for_and_no_event_is_dead_lettered(make_rig: MakeRig) -> None:
    registry = OneSchema()
    extra = {"max.retries": 0, "basic.auth.user.info": "me:secret"}
    rig = make_rig(input={"format": "avro"}, schema_registry={"url": registry.url, "extra": extra}).stocked()
    assert "secret" not in rig.run("scorer", "config", "scorer.yaml").stdout
    scorer = rig.start().ready()
    rig.produce(registry.event(1, "x", 1.0), key=b"k")
    waits_for(scorer, "schema-registry")
    assert rig.answered() == 0
    registry.open()
    until(lambda: rig.answered() == 1, "the score")
    until(lambda: scorer.get("/readyz")[0] == 200, "readiness")
    for number in (2, 0x7FFFFFFF, 0xFFFFFFFF):
        rig.produce(registry.event(number, "y", 1.0), key=b"k")
    rig.produce(registry.event(1, "z", 1.0), key=b"k")
    until(lambda: rig.answered() == 5, "all answers")
    assert {letter["reason"] for letter in rig.dead()} == {"unknown-schema"}
    registry.close()
    assert scorer.stop() == 0
    assert scorer.said.count("does not answer") == 1


def test_a_partition_that_is_out_of_range_waits_and_the_others_continue(make_rig: MakeRig) -> None:
    rig = make_rig().stocked(2)
    rig.emit(events(40))
    rig.start().ready()
    until(lambda: rig.answered() == 40, "the scores")
    assert rig.scorers[-1].stop() == 0
    before = rig.marks()
    beyond = TopicPartition(rig.events_topic, 0, before[0]["offset"] + 1_000)
    rig.admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(rig.name, [beyond])])[rig.name].result()

    scorer = rig.start().ready()
    until(
        lambda: f'scorer_partition_paused{{partition="0",topic="{rig.events_topic}"}} 1.0' in scorer.get("/metrics")[1],
        "the alarm",
    )
    rig.emit(events(100, start=40))
    until(lambda: rig.answered() >= 40 + behind(rig, 1, before), "the other partition's scores")
    messages = [line for line in scorer.said.splitlines() if "the position of the group is" in line]
    assert len(messages) == 1
    assert f"scorer offsets CONFIG --topic {rig.events_topic} --partition 0 --to earliest" in messages[0]
    until(lambda: any("the position of the group is" in p["paused"] for p in rig.fleet()[0]["partitions"]), "the status record")
    assert scorer.stop() == 0

    back = TopicPartition(rig.events_topic, 0, before[0]["offset"])
    rig.admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(rig.name, [back])])[rig.name].result()
    scorer = rig.start().ready()
    until(lambda: rig.answered() == 140, "everything")
    rig.assert_clean(events=140, scored=140)
    assert scorer.stop() == 0


def behind(rig: Rig, partition: int, before: dict[int, dict[str, int]]) -> int:
    return rig.ends()[partition] - before[partition]["offset"]
