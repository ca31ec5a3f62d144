"""A cluster that did not answer is asked by another client the next time."""

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from publisher.errors import Retriable
from publisher.kafka import clients as kafka
from publisher.kafka.clients import KafkaSettings
from publisher.kafka.topics import Topics


class Lost:
    """A client that waits for its controller for ever, and says so each time."""

    def describe_cluster(self, **_: Any) -> Future[Any]:
        asked: Future[Any] = Future()
        asked.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT, "Failed while waiting for controller")))
        return asked

    def poll(self, _: float) -> None:
        """Nothing to tell."""


class Well(Lost):
    def describe_cluster(self, **_: Any) -> Future[Any]:
        asked: Future[Any] = Future()
        asked.set_result(type("Described", (), {"cluster_id": "c1"}))
        return asked


def test_a_client_that_has_lost_its_way_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [Lost(), Well()]
    monkeypatch.setattr(kafka, "admin", lambda *_: made.pop(0))
    asked = Topics(KafkaSettings(bootstrap_servers="nowhere:9092"), "relay", "eu (source)", 1.0)
    with pytest.raises(Retriable, match="waiting for controller"):
        asked.id()
    assert asked.id() == "c1"
