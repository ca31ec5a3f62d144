"""What is taken and written natively on a real broker is what the Kafka client itself reads and writes."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import numpy as np
import pytest
from confluent_kafka import TopicPartition

from publisher.kafka import clients
from publisher.kafka.clients import HandledProducer, KafkaSettings
from publisher.transactions.rejected_records import RejectedRecords
from publisher.transactions.session import Record
from scorer.consumer.batch_fetcher import BatchFetcher
from scorer.decoding.batch import Batch
from scorer.decoding.columnar_batch import ColumnarBatch
from scorer.fetch.native_source import NativeFetchSource, open_fetch_source
from scorer.fetch.source import FetchFailure, FetchSource
from scorer.native.byte_columns import ByteColumn
from scorer.native.librdkafka import librdkafka_plugin
from scorer.native.produce_records import ColumnarRecords, RecordPiece, chosen, constant
from tests.chaos.fuzz.raw import RawProducer, RawRecord
from tests.support import auditor
from tests.support.fixtures import MakeTopics
from tests.support.shared_broker import Broker
from tests.support.waiting import STEP_SECONDS, until

pytestmark = pytest.mark.debian("cc")
NOW = time.time_ns() // 1_000_000
RECORDS = [
    RawRecord(b"k", b"plain", (), NOW),
    RawRecord(None, b"no key", (), NOW),
    RawRecord(b"", b"", (), NOW),
    RawRecord(b"k", None, (), NOW),
    RawRecord(b"k", b"headers", ((b"a", b"1"), (b"a", None), ("é".encode(), b""), (b"", b"\xff")), NOW),
    RawRecord(b"k", b"unreadable", ((b"a", b"1"), (b"\xff\xfe", b"x")), NOW),
    RawRecord(b"k" * 5_000, b"v" * 300_000, (), NOW),
    RawRecord(b"k", b"old", (), 0),
]


def settings(broker: Broker) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers=broker.bootstrap_servers)


def write(broker: Broker, topic: str, records: list[RawRecord]) -> None:
    """The records into both partitions of a topic that has just been made."""
    with closing(RawProducer(broker.bootstrap_servers)) as producer:
        for partition in (0, 1):
            until(lambda at=partition: producer.write(topic, at, records, "zstd") == 0, "the topic")  # type: ignore[misc]


@contextmanager
def reading(broker: Broker, *, native: bool, at: list[TopicPartition]) -> Iterator[FetchSource]:
    """A source that reads from there. The consumer closes at the end: it would wait for ever for a queue that is still held."""
    plugin = librdkafka_plugin() if native else None
    consumer = clients.consumer(settings(broker), "t", "native-bus", lambda _: None, lambda *_: None, plugin)
    source = open_fetch_source(consumer)
    assert isinstance(source, NativeFetchSource) is native
    with closing(consumer), closing(source):
        source.forward(at)
        consumer.incremental_assign(at)
        yield source


def taken(source: FetchSource, count: int) -> tuple[list[Batch], list[FetchFailure]]:
    """Batches of so many events together, and the failures before them."""
    batches: list[Batch] = []
    failures: list[FetchFailure] = []

    def enough() -> bool:
        if source.first(0.2) is not None:
            source.more(3, 0)
        columnar = source.finish()
        failures.extend(columnar.failures)
        if (batch := columnar.batch(set(), "empty")) is not None:
            batches.append(batch)
        return sum(map(len, batches)) >= count

    until(enough, f"{count} events")
    return batches, failures


def columns(batches: list[Batch]) -> list[list[object]]:
    """All columns of all batches, by partition; the rows without readable headers are counted through."""
    rows = []
    for batch in batches:
        lists = (batch.topics, batch.partitions, batch.offsets, batch.keys, batch.values, batch.timestamps, batch.headers)
        unread = [row in set(batch.unread) for row in range(len(batch))]
        rows += [list(row) for row in zip(*lists, unread, strict=True)]
    return sorted(rows, key=lambda row: row[:3])


def test_events_are_taken_as_the_client_reads_them(broker: Broker, make_topics: MakeTopics) -> None:
    (topic,) = make_topics("in", partitions=2, config={"message.timestamp.before.max.ms": str(2**63 - 1)})
    write(broker, topic, RECORDS * 3)
    partitions = [TopicPartition(topic, partition, 0) for partition in (0, 1)]
    rows = {}
    for native in (False, True):
        with reading(broker, native=native, at=partitions) as source:
            batches, failures = taken(source, 6 * len(RECORDS))
        assert failures == []
        assert all(isinstance(batch, ColumnarBatch) for batch in batches) is native
        rows[native] = columns(batches)
        assert {epoch for batch in batches for epoch in batch.leader_epochs.values()} == {0}
    assert rows[True] == rows[False]
    assert [row[7] for row in rows[True]].count(True) == 6


def test_some_partitions_of_a_fetch_are_skipped(broker: Broker, make_topics: MakeTopics) -> None:
    (topic,) = make_topics("in", partitions=2, config={"message.timestamp.before.max.ms": str(2**63 - 1)})
    write(broker, topic, RECORDS)
    batches: list[Batch] = []
    with reading(broker, native=True, at=[TopicPartition(topic, partition, 0) for partition in (0, 1)]) as source:

        def all_of_one() -> bool:
            if source.first(0.2) is not None:
                source.more(100, 0)
            if (batch := source.finish().batch({(topic, 1)}, "events")) is not None:
                batches.append(batch)
            return sum(map(len, batches)) == len(RECORDS)

        until(all_of_one, "the events of one partition")
    assert {place for batch in batches for place in batch.places} == {(topic, 0)}
    assert [value for batch in batches for value in batch.values] == [record.value for record in RECORDS]
    assert batches[-1].leader_epochs == {(topic, 0): 0}
    assert [row for batch in batches for row in batch.unread if batch.values[row] == b"unreadable"] != []


@pytest.mark.parametrize("native", [False, True])
def test_a_fetch_discards_the_events_of_an_interrupted_one(broker: Broker, make_topics: MakeTopics, native: bool) -> None:
    (topic,) = make_topics("in", partitions=2)
    write(broker, topic, RECORDS[:1] * 2)
    with reading(broker, native=native, at=[TopicPartition(topic, 0, 0)]) as source:
        until(lambda: source.first(0.2) is not None, "the first event")
        batches, failures = taken(source, 1)
    assert failures == []
    assert [batch.offsets for batch in batches] == [[1]]


@pytest.mark.parametrize("native", [False, True])
def test_events_that_arrive_in_time_belong_to_the_batch(broker: Broker, make_topics: MakeTopics, native: bool) -> None:
    (topic,) = make_topics("in", partitions=2)
    write(broker, topic, RECORDS[:1])
    later = threading.Timer(0.2, write, (broker, topic, RECORDS[1:2]))
    pull, now = BatchFetcher(), time.monotonic()
    with reading(broker, native=native, at=[TopicPartition(topic, partition, 0) for partition in (0, 1)]) as source:
        later.start()
        batch = pull.take(source, STEP_SECONDS, lambda _: 4, now + STEP_SECONDS).batch(set(), pull.end)
        assert batch is not None
        assert sorted(batch.keys, key=repr) == [None, None, b"k", b"k"]
        assert pull.end == "events"
    later.join()


@pytest.mark.parametrize("native", [False, True])
def test_a_position_that_is_out_of_range_is_a_failure_with_its_place(
    broker: Broker, make_topics: MakeTopics, native: bool
) -> None:
    (topic,) = make_topics("in", partitions=1)
    failures: list[FetchFailure] = []
    with reading(broker, native=native, at=[TopicPartition(topic, 0, 7)]) as source:

        def failed() -> bool:
            source.first(0.2)
            failures.extend(source.finish().failures)
            return bool(failures)

        until(failed, "a failure")
    ((place, _, error),) = failures[:1]
    assert place == (topic, 0)
    assert error.name() == "_AUTO_OFFSET_RESET"
    assert "out of range" in error.str().lower()


def test_a_source_that_is_closed_gives_nothing(broker: Broker, make_topics: MakeTopics) -> None:
    """Another consumer may not have been made when the group is heard next."""
    (topic,) = make_topics("in", partitions=1)
    with reading(broker, native=True, at=[TopicPartition(topic, 0, 0)]) as source:
        source.close()
        source.forward([TopicPartition(topic, 0)])
        assert source.first(0.0) is None
        assert source.skip(10, 0.1) == []


def packed(topic: str, producer_count: int) -> ColumnarRecords:
    """Records with every kind of piece and key."""
    native = librdkafka_plugin()
    assert native is not None
    names = [b"a", b"", b"ccc", b"dd"] * (producer_count // 4)
    bounds = np.cumsum([0, *map(len, names)]).astype(np.int64)
    texts = ByteColumn(np.frombuffer(b"".join(names), np.uint8), bounds[:-1], bounds[1:], np.arange(producer_count) % 4 == 1)
    numbers = np.array([0, -1, 2**63 - 1, -(2**63)] * (producer_count // 4), np.int64)
    choices = np.arange(producer_count, dtype=np.int32) % 2
    pieces = [constant(b"<", producer_count), RecordPiece(texts), chosen([b"", b"odd"], choices), RecordPiece(numbers=numbers)]
    return ColumnarRecords(native, topic, pieces, choices, np.full(producer_count, NOW, np.int64), texts)


def written(producer: HandledProducer, records: ColumnarRecords) -> None:
    RejectedRecords().produce(producer, records, None, lambda: producer.flush(STEP_SECONDS))
    assert producer.flush(30) == 0


def test_records_are_written_as_the_client_writes_them(broker: Broker, make_topics: MakeTopics) -> None:
    (topic,) = make_topics("out", partitions=2)
    for room in (100_000, 10):
        extra: dict[str, str | int | float | bool] = {"queue.buffering.max.messages": room}
        kafka = KafkaSettings(bootstrap_servers=broker.bootstrap_servers, extra=extra)
        producer = clients.checkpoint_producer(kafka, "t", 1_000_000, lambda *_: None, plugin=librdkafka_plugin())
        assert isinstance(producer, HandledProducer)
        assert producer.handle
        written(producer, packed(topic, 400))
    expected = list(packed(topic, 400))
    records: list[Record] = [
        (m.topic() or "", m.value(), m.key(), m.partition() or 0, m.timestamp()[1], None)
        for m in auditor.read(broker.bootstrap_servers, topic)
    ]
    assert expected[1][1:3] == (b"<odd-1", None)
    assert expected[2][1] == b"<ccc9223372036854775807"
    for partition in (0, 1):
        of_both = [record for record in expected if record[3] == partition] * 2
        assert [record for record in records if record[3] == partition] == of_both
