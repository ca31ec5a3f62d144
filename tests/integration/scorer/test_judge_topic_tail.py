"""What the judge takes natively from a real broker is what the Kafka client itself gives it."""

import time
from contextlib import closing

import pytest
from confluent_kafka import KafkaError, TopicPartition

from publisher.kafka import clients
from publisher.kafka.clients import KafkaSettings
from publisher.kafka.partitions import Partition
from scorer.fetch.native_source import NativeFetchSource, open_fetch_source
from scorer.native.byte_columns import take_rows
from scorer.native.librdkafka import librdkafka_plugin
from tests.chaos.fuzz.raw import RawProducer, RawRecord
from tests.support.fixtures import MakeTopics
from tests.support.shared_broker import Broker
from tests.support.waiting import until

NOW = time.time_ns() // 1_000_000
RECORDS = [
    RawRecord(b"k", b"plain", (), NOW),
    RawRecord(None, b"no key", (), NOW),
    RawRecord(b"", b"", (), NOW),
    RawRecord(b"k", None, (), NOW),
    RawRecord(b"k", b"headers", ((b"a", b"1"), (b"a", None), ("é".encode(), b""), (b"", b"\xff")), NOW),
    RawRecord(b"k", b"unreadable", ((b"a", b"1"), (b"\xff\xfe", b"x")), NOW),
    RawRecord(b"k" * 5_000, b"v" * 300_000, (), NOW),
]
Row = tuple[object, ...]


def read(
    broker: Broker, places: list[TopicPartition], count: int, *, native: bool
) -> tuple[dict[object, list[Row]], dict[Partition, int]]:
    """So many records by partition: offset, value, key, headers; and the ends of partitions, until each was reached."""
    settings, plugin = KafkaSettings(bootstrap_servers=broker.bootstrap_servers), librdkafka_plugin() if native else None
    consumer = clients.plugged_reader(settings, "t", plugin, **{"enable.partition.eof": True})
    source = open_fetch_source(consumer)
    assert isinstance(source, NativeFetchSource) is native
    rows_by_partition: dict[object, list[Row]] = {}
    ends: dict[Partition, int] = {}

    def enough() -> bool:
        if source.first(0.2) is not None:
            source.more(4, 0.2)
        fetched = source.finish()
        assert not fetched.failures
        ends.update(fetched.ends)
        records = fetched.columns()
        assert records.size == sum(len(value or b"") for value in records.values)
        for partition, rows, offsets in records.partitions:
            columns = (take_rows(records.values, rows), take_rows(records.keys, rows), records.headers(rows))
            rows_by_partition.setdefault(partition, []).extend(zip(offsets.tolist(), *columns, strict=True))
        return sum(map(len, rows_by_partition.values())) >= count and len(ends) >= len(places)

    with closing(consumer), closing(source):
        source.forward(places)
        consumer.incremental_assign(places)
        until(enough, f"{count} records and the ends")
    return rows_by_partition, ends


@pytest.mark.debian("cc")
def test_records_are_taken_as_the_client_reads_them(broker: Broker, make_topics: MakeTopics) -> None:
    (topic,) = make_topics("in", partitions=2)
    with closing(RawProducer(broker.bootstrap_servers)) as producer:
        for partition in (0, 1):
            until(lambda at=partition: producer.write(topic, at, RECORDS * 2, "zstd") == 0, "the topic")  # type: ignore[misc]
    places = [TopicPartition(topic, partition, 1) for partition in (0, 1)]
    both = [read(broker, places, 2 * (2 * len(RECORDS) - 1), native=native) for native in (False, True)]
    (rows, ends), (other_rows, other_ends) = both
    assert rows == other_rows
    assert [row[:3] for row in rows[topic, 0]] == [
        (offset, record.value, record.key) for offset, record in enumerate(RECORDS * 2) if offset
    ]
    assert [row[3] for row in rows[topic, 1][3:5]] == [[("a", b"1"), ("a", None), ("é", b""), ("", b"\xff")], None]
    assert ends == other_ends == {(topic, at): 2 * len(RECORDS) for at in (0, 1)}


@pytest.mark.debian("cc")
def test_a_deleted_topic_ends_no_process_and_other_errors_are_reported(broker: Broker) -> None:
    """The library reports the topic by a callback, when records are taken, and other errors in a poll."""
    errors: list[KafkaError] = []
    soon: dict[str, str | int | float | bool] = {
        "topic.metadata.propagation.max.ms": 1,
        "topic.metadata.refresh.interval.ms": 100,
    }
    for servers in (broker.bootstrap_servers, "127.0.0.1:1"):
        settings = KafkaSettings(bootstrap_servers=servers, extra=soon)
        consumer = clients.plugged_reader(settings, "t", librdkafka_plugin(), error_cb=errors.append)
        source = open_fetch_source(consumer)
        assert isinstance(source, NativeFetchSource)
        with closing(consumer), closing(source):
            source.forward([TopicPartition("not-there", 0)])
            consumer.incremental_assign([TopicPartition("not-there", 0, 0)])
            deadline = time.monotonic() + 2
            while time.monotonic() < deadline:
                assert source.first(0.1) is None
                assert not source.finish().partitions
    assert "_TRANSPORT" in {error.name() for error in errors}
