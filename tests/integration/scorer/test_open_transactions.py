"""A transaction that the broker has forgotten to end (KAFKA-20734), on a real broker that is killed and comes back."""

import contextlib
import re
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from publisher.kafka.clients import KafkaSettings
from publisher.runtime.context import Context
from publisher.transactions.wait_for_open_transactions import OpenTransactions
from tests.chaos.cluster import Cluster
from tests.support.topics import admin, settle

FORGETFUL = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "broker.session.timeout.ms": "8000",  # so long a broker that has come back takes itself for the leader
}
TIMEOUT_MS = 2_000
LONG_MS = 120_000  # the broker ends no transaction by itself
TRIES = 20
GROUP, READ, WRITTEN = "scorers", "flights", "flights.scores"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with contextlib.closing(Cluster(1, properties=FORGETFUL, apart=False)) as started:
        settle(admin(started.start().bootstrap_servers).create_topics([NewTopic(READ, 2, 1), NewTopic(WRITTEN, 2, 1)]))
        yield started


def watch(cluster: Cluster, sweep_seconds: float = 2.0) -> OpenTransactions:
    settings = KafkaSettings(bootstrap_servers=cluster.bootstrap_servers, transaction_timeout_ms=TIMEOUT_MS)
    return OpenTransactions(settings, "watch", [WRITTEN], GROUP, [READ], sweep_seconds=sweep_seconds)


def producer(cluster: Cluster, timeout_ms: int) -> Producer:
    transactional = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": "scorers/scorer/r1/0",
            "transaction.timeout.ms": timeout_ms,
            "error_cb": lambda _: None,
        }
    )
    transactional.init_transactions(60)
    return transactional


def member(cluster: Cluster) -> Consumer:
    joined = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": GROUP, "error_cb": lambda _: None})
    joined.subscribe([READ])
    while not joined.assignment():
        joined.poll(0.1)
    return joined


def write(writing: Producer, consumer: Consumer, *, position: int, record: bool = True) -> None:
    """A transaction that is left open: a record and a position, each in partition 1."""
    writing.begin_transaction()
    if record:
        writing.produce(WRITTEN, b"score", partition=1)
        writing.flush(10)
    writing.send_offsets_to_transaction([TopicPartition(READ, 1, position)], consumer.consumer_group_metadata(), 10)


class Enough(Exception):
    """Ends a wait that would continue."""


def alarmed(
    caplog: pytest.LogCaptureFixture, open_: OpenTransactions, where: str, meanwhile: Callable[[], None] = lambda: None
) -> bool:
    """Whether the wait goes on until the alarm has named the place and both reasons; not where all transactions end."""
    caplog.clear()

    def waiting() -> None:
        meanwhile()
        if re.search(rf"(?s){where}.*KAFKA-20734", caplog.text):
            raise Enough

    try:
        open_.wait(Context(raise_if_cancelled=waiting))
    except Enough:
        assert "another program" in caplog.text
        assert "kafka-transactions.sh" in caplog.text
        return True
    return False


def after_one_is_forgotten(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> tuple[Producer, Consumer]:
    """Kill the broker in a transaction until it forgets to end one, which a busy machine's broker does not always do. The
    next producer of the id, for which the broker says that everything is decided, and a member of the group."""
    for _ in range(TRIES):
        consumer = member(cluster)  # a new one each time: a broker that returns late no longer knows the old one
        _, begin = consumer.get_watermark_offsets(TopicPartition(WRITTEN, 1), timeout=20)
        where = rf"{WRITTEN}\[1\] from offset {begin} on"
        write(producer(cluster, TIMEOUT_MS), consumer, position=2)
        cluster.nodes[0].kill()
        forgotten = alarmed(caplog, watch(cluster), where, cluster.nodes[0].start)  # unavailable brokers are waited for
        second = producer(cluster, TIMEOUT_MS)
        if forgotten and alarmed(caplog, watch(cluster, -1.9), where):
            return second, consumer
        consumer.close()
    pytest.fail(f"the broker ended the transaction each of {TRIES} times")


@pytest.mark.timeout(900)
def test_a_transaction_that_ends_is_waited_for_and_a_forgotten_one_is_named(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    consumer, first = member(cluster), producer(cluster, LONG_MS)
    watch(cluster).wait(Context())
    write(first, consumer, position=1)
    waited = 0

    def waiting() -> None:
        nonlocal waited
        waited += 1
        if waited == 5:
            first.commit_transaction(10)

    watch(cluster, 60.0).wait(Context(raise_if_cancelled=waiting))
    assert waited >= 5

    write(first, consumer, position=2, record=False)
    assert alarmed(caplog, watch(cluster, -1.9), rf"the position of group {GROUP} in {READ}\[1\]")
    first.abort_transaction(10)
    watch(cluster, 60.0).wait(Context())
    consumer.close()

    second, consumer = after_one_is_forgotten(cluster, caplog)
    second.begin_transaction()  # what would have happened, and the reason for all this: the old position is committed too
    second.produce(WRITTEN, b"another", partition=1)
    second.send_offsets_to_transaction([TopicPartition(READ, 0, 7)], consumer.consumer_group_metadata(), 10)
    second.commit_transaction(10)
    committed = consumer.committed([TopicPartition(READ, 1)], timeout=20)
    assert committed[0].offset == 2
    consumer.close()
