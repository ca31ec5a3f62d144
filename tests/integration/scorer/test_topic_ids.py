"""Repeated queries of topics leak no memory."""

import gc
from collections.abc import Callable, Mapping

import pytest
from confluent_kafka import TopicCollection, Uuid
from confluent_kafka.admin import AdminClient

from publisher.kafka.clients import KafkaSettings
from publisher.kafka.reader import TopicReader
from publisher.kafka.topic_ids import topic_id
from publisher.kafka.topics import Topics
from tests.support.fixtures import MakeTopics
from tests.support.shared_broker import Broker

Look = Callable[[], Mapping[str, object]]


def count_live_ids() -> int:
    gc.collect()
    return sum(isinstance(candidate, Uuid) for candidate in gc.get_objects())


@pytest.mark.parametrize("reader_name", ["topics", "reader"])
def test_topic_queries_keep_no_ids(broker: Broker, make_topics: MakeTopics, reader_name: str) -> None:
    names = make_topics("a", "b", partitions=1)
    settings = KafkaSettings(bootstrap_servers=broker.bootstrap_servers)
    looks: dict[str, Look] = {
        "topics": lambda: Topics(settings, "looks", "the broker", 10.0).topics(names),
        "reader": lambda: TopicReader(settings, "looks").ids(names),
    }
    before = count_live_ids()
    for _ in range(5):
        assert sorted(looks[reader_name]()) == names
    assert count_live_ids() == before


def test_an_id_with_other_references_stays_valid(admin: AdminClient, make_topics: MakeTopics) -> None:
    (name,) = make_topics("a", partitions=1)
    described = admin.describe_topics(TopicCollection([name]))[name].result()
    ids = {topic_id(described) for _ in range(5)}
    assert ids == {str(described.topic_id)}
