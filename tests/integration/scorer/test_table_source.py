"""Tables on a real broker: what a worker restores, follows and reads again."""

import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from model_registry.package.signature import InputField, Output, Signature, TensorInput
from scorer.consumer.table_source import KafkaTableSource
from scorer.decoding.table_rows import row_decoder_factory
from scorer.settings import Settings
from scorer.tables.tables import Tables
from tests.benchmarks.bench import tables as bench
from tests.support.fixtures import MakeTopics
from tests.support.shared_broker import Broker
from tests.support.waiting import until
from tests.unit.scorer.minimal import minimal

AGE = InputField("t.age", "float32", required=False, default=-1.0, source="table:t")
SIGNATURE = Signature((TensorInput("x", "float32", (AGE,)),), (Output(None, "y"),))
COMPACTED = {"cleanup.policy": "compact"}
Row = tuple[bytes | None, bytes | None]


def settings_of(broker: Broker, topic: str, **table: Any) -> Settings:
    return minimal(kafka={"bootstrap_servers": broker.bootstrap_servers}, tables={"t": {"topic": topic} | table})


@contextmanager
def running(settings: Settings) -> Iterator[Tables]:
    source = KafkaTableSource(settings.kafka, "tables-test")
    with closing(Tables(settings.tables, source, lambda name: row_decoder_factory(name, settings))) as tables:
        tables.start()
        tables.prepare(SIGNATURE)
        yield tables


def row(age: float) -> bytes:
    return json.dumps({"age": age}).encode()


def write(broker: Broker, topic: str, rows: Sequence[Row], partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "message.max.bytes": 20_000_000})
    for key, value in rows:
        producer.produce(topic, value, key, partition)
    assert producer.flush(30) == 0


def follow(tables: Tables, *partitions: int) -> None:
    assigned = [("in", partition) for partition in partitions]
    tables.follow(assigned, assigned)
    until(lambda: not tables.waiting(), "the restored tables")


def ages(tables: Tables, *keys: bytes, partition: int = 0) -> list[float]:
    joined = tables.columns("t", [AGE], keys, [partition] * len(keys))
    values: list[float] = joined.tensors["t.age"][:, 0].tolist()
    return values


def test_a_table_is_restored_and_then_followed(broker: Broker, make_topics: MakeTopics) -> None:
    (topic,) = make_topics("features", partitions=2, config=COMPACTED)
    write(broker, topic, [(b"%d" % number, row(number)) for number in range(10_000)])
    write(broker, topic, [(b"other", row(7))], partition=1)
    with running(settings_of(broker, topic)) as tables:
        follow(tables, 0)
        assert ages(tables, b"0", b"9999", b"10000", b"other") == [0, 9_999, -1, -1]
        write(broker, topic, [(b"0", row(42)), (b"1", None)])
        until(lambda: ages(tables, b"0", b"1") == [42, -1], "the update and the tombstone")
        follow(tables, 0, 1)
        assert ages(tables, b"other", partition=1) == [7]
        follow(tables, 1)
        until(lambda: [status.partition for status in tables.status()] == [1], "the end of partition 0")
        assert ages(tables, b"0") == [-1]
        follow(tables, 0)
        assert ages(tables, b"0", b"1", b"2") == [42, -1, 2]


def test_every_worker_has_all_rows_of_a_table_of_scope_all(broker: Broker, make_topics: MakeTopics) -> None:
    (topic,) = make_topics("features", partitions=3, config=COMPACTED)
    for partition in range(3):
        write(broker, topic, [(b"key-%d" % partition, row(partition))], partition)
    with running(settings_of(broker, topic, scope="all")) as tables:
        follow(tables, 11)
        assert ages(tables, b"key-0", b"key-1", b"key-2", partition=11) == [0, 1, 2]


def test_only_committed_records_are_rows_and_a_marker_at_the_end_does_not_delay_the_restore(
    broker: Broker, make_topics: MakeTopics, unique: str
) -> None:
    (topic,) = make_topics("features", partitions=1, config=COMPACTED)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": unique})
    producer.init_transactions(30)
    for value, end in ((1, producer.commit_transaction), (2, producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(topic, row(value), b"a", 0)
        assert producer.flush(30) == 0
        end(30)
    with running(settings_of(broker, topic)) as tables:
        follow(tables, 0)
        assert ages(tables, b"a") == [1]
        (status,) = tables.status()
        assert (status.position, status.end) == (4, 4)


def test_hostile_records_are_counted_and_the_others_are_read(broker: Broker, make_topics: MakeTopics) -> None:
    (topic,) = make_topics("features", partitions=1, config={"max.message.bytes": "20000000"})
    large = json.dumps({"age": 3, "text": "x" * 10_000_000}).encode()
    hostile: list[Row] = [(None, row(1)), (b"wrong", row("x")), (b"\xff\xfe", row(2)), (b"large", large), (b"", b"")]  # type: ignore[arg-type]
    write(broker, topic, [*hostile, *((b"absent-%d" % number, None) for number in range(100)), (b"last", row(9))])
    with running(settings_of(broker, topic)) as tables:
        follow(tables, 0)
        assert ages(tables, b"wrong", b"\xff\xfe", b"large", b"", b"last") == [-1, 2, 3, -1, 9]
        assert tables.unreadable() == {"t": {"no-key": 1, "wrong-type": 1, "malformed": 1}}


def test_a_recreated_topic_is_read_from_its_beginning(broker: Broker, make_topics: MakeTopics, admin: AdminClient) -> None:
    (topic,) = make_topics("features", partitions=1, config=COMPACTED)
    write(broker, topic, [(b"a", row(1)), (b"b", row(1))])
    with running(settings_of(broker, topic)) as tables:
        follow(tables, 0)
        admin.delete_topics([topic])[topic].result(30)
        until(lambda: topic not in admin.list_topics(timeout=10).topics, "the deletion")
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
        until(lambda: topic in admin.list_topics(timeout=10).topics, "the topic")
        write(broker, topic, [(b"c", row(3)), (b"d", row(4)), (b"e", row(5))])
        until(lambda: ages(tables, b"a", b"b", b"c", b"e") == [-1, -1, 3, 5], "the rows of the new topic")


def test_a_topic_that_did_not_exist_for_a_time_is_read_after_it_is_recreated(
    broker: Broker, make_topics: MakeTopics, admin: AdminClient
) -> None:
    (topic,) = make_topics("features", partitions=1, config=COMPACTED)
    write(broker, topic, [(b"a", row(1))])
    with running(settings_of(broker, topic, when_behind="wait", max_lag_seconds=1)) as tables:
        follow(tables, 0)
        admin.delete_topics([topic])[topic].result(30)
        until(lambda: topic not in admin.list_topics(timeout=10).topics, "the deletion")
        until(tables.waiting, "the lag")
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
        until(lambda: topic in admin.list_topics(timeout=10).topics, "the topic")
        write(broker, topic, [(b"a", row(9))])
        until(lambda: not tables.waiting() and ages(tables, b"a") == [9], "the row of the new topic")


def test_a_partition_that_lost_its_unread_records_is_read_from_its_new_beginning(
    broker: Broker, make_topics: MakeTopics, admin: AdminClient
) -> None:
    (topic,) = make_topics("features", partitions=1)
    write(broker, topic, [(b"a", row(1)), (b"b", row(2)), (b"c", row(3))])
    admin.delete_records([TopicPartition(topic, 0, 2)])[TopicPartition(topic, 0)].result(30)
    with running(settings_of(broker, topic)) as tables:
        follow(tables, 0)
        assert ages(tables, b"a", b"b", b"c") == [-1, -1, 3]


def test_events_wait_until_the_topic_of_the_table_exists(broker: Broker, admin: AdminClient, unique: str) -> None:
    topic = f"{unique}.late"
    with running(settings_of(broker, topic)) as tables:
        tables.follow([("in", 0)], [("in", 0)])
        until(lambda: "is not available" in tables.waiting().get(("in", 0), ""), "the missing topic")
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
        until(lambda: not tables.waiting(), "the new topic")


@pytest.mark.parametrize("rows", [0, 1])
def test_the_lag_of_an_idle_table_stays_small(broker: Broker, make_topics: MakeTopics, rows: int) -> None:
    (topic,) = make_topics("features", partitions=1, config=COMPACTED)
    write(broker, topic, [(b"a", row(1))] * rows)
    with running(settings_of(broker, topic, when_behind="wait", max_lag_seconds=1)) as tables:
        follow(tables, 0)
        lags: list[float] = []

        def has_fallen() -> bool:
            lags.extend(status.lag_seconds for status in tables.status())
            return any(later < earlier for earlier, later in pairwise(lags))

        until(has_fallen, "a newer end")


def test_the_benchmark_restores_and_joins_every_row(broker: Broker, unique: str) -> None:
    topic = f"{unique}.rows"
    raw = bench.fill(broker.bootstrap_servers, topic, 2_000, 3)
    figures = bench.measured(broker.bootstrap_servers, topic, 2_000, 3, raw)
    assert figures["raw_bytes_per_row"] == 88
    assert all(figure > 0 for figure in figures.values())
