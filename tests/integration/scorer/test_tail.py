"""What `scorer tail --no-follow` shows while transactions are open, on a real broker."""

import contextlib
from collections.abc import Iterator

import pytest
from confluent_kafka import OFFSET_BEGINNING, Message, Producer

from publisher.errors import Fatal
from publisher.kafka import acls, topic_follower
from publisher.kafka.clients import KafkaSettings
from publisher.kafka.topic_follower import TopicFollower
from tests.integration.scorer.rig import MakeRig, Rig

NEWS_BEFORE_THE_COMMIT = 5


class Committing(TopicFollower):
    """Commits the transaction of `producer` when it has waited for it a while."""

    producer: Producer
    asked = 0

    def poll(self, seconds: float = topic_follower.POLL_SECONDS) -> Iterator[Message]:
        self.asked += 1
        if self.asked == NEWS_BEFORE_THE_COMMIT:
            self.producer.commit_transaction(10)
        return super().poll(seconds)


@pytest.fixture
def rig(make_rig: MakeRig) -> Rig:
    rig = make_rig()
    rig.make_topic(rig.scores_topic, 2)
    return rig


def writing(rig: Rig) -> Producer:
    producer = Producer({"bootstrap.servers": rig.bootstrap_servers, "transactional.id": rig.name, "error_cb": lambda _: None})
    producer.init_transactions(30)
    return producer


def write(producer: Producer, rig: Rig, value: bytes | None, partition: int) -> None:
    producer.produce(rig.scores_topic, value, partition=partition)
    producer.flush(10)


def reading(rig: Rig) -> Committing:
    settings = KafkaSettings(bootstrap_servers=rig.bootstrap_servers)
    reader = Committing(settings, "tail", acls.to_read(rig.scores_topic), [rig.scores_topic])
    reader.begin(OFFSET_BEGINNING)
    return reader


def test_a_record_without_a_value_is_read_too(rig: Rig) -> None:
    """Also where it is the first that comes: the client counts such a message as false."""
    producer = writing(rig)
    producer.begin_transaction()
    write(producer, rig, None, 0)
    write(producer, rig, b"", 1)
    producer.commit_transaction(10)
    with contextlib.closing(reading(rig)) as reader:
        reader.asked = NEWS_BEFORE_THE_COMMIT
        assert {message.partition(): message.value() for message in reader.to_end()} == {0: None, 1: b""}


def test_a_transaction_that_is_open_is_waited_for(rig: Rig) -> None:
    producer = writing(rig)
    producer.begin_transaction()
    write(producer, rig, b"one", 0)
    write(producer, rig, b"two", 1)
    with contextlib.closing(reading(rig)) as reader:
        reader.producer = producer
        assert [message.value() for message in reader.oldest_first()] == [b"one", b"two"]
    assert reader.asked >= NEWS_BEFORE_THE_COMMIT


def test_a_transaction_that_stays_open_is_named_after_all_readable_records(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_follower, "SILENCE_SECONDS", 3.0)
    producer = writing(rig)
    producer.begin_transaction()
    write(producer, rig, b"one", 0)
    producer.commit_transaction(10)
    producer.begin_transaction()
    write(producer, rig, b"two", 1)
    with contextlib.closing(reading(rig)) as reader:
        reader.asked = NEWS_BEFORE_THE_COMMIT
        records = reader.oldest_first()
        assert next(records).value() == b"one"
        with pytest.raises(Fatal, match=r"a transaction is open in .*\[1\] from offset 0 on"):
            next(records)
    producer.abort_transaction(10)
