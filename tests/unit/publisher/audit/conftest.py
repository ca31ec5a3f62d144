"""A cluster in memory (librdkafka's mock). It supports reads and queries, but no transactions or groups."""

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

Write = Callable[..., None]
Headers = list[tuple[str, str | bytes | None]]


@pytest.fixture(scope="session")
def mock_producer() -> Iterator[Producer]:
    producer = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 0})
    yield producer
    producer.flush(10)


@pytest.fixture(scope="session")
def bootstrap_servers(mock_producer: Producer) -> str:
    broker = next(iter(mock_producer.list_topics(timeout=10).brokers.values()))
    return f"{broker.host}:{broker.port}"


@pytest.fixture
def write(mock_producer: Producer) -> Write:
    """Return `write(topic, partition, [(value, headers), ...])`, which returns when all records are stored."""

    def records(topic: str, partition: int, values: list[tuple[bytes | None, Headers]]) -> None:
        for value, headers in values:
            mock_producer.produce(topic, value, partition=partition, headers=headers)
        assert mock_producer.flush(10) == 0

    return records
