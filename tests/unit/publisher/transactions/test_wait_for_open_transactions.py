"""The wait before an id writes again covers the transactions open at the call, of any producer, and no later ones."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException

from publisher.errors import Aborted, NotAllowed
from publisher.kafka import clients
from publisher.kafka.clients import KafkaSettings
from publisher.kafka.partitions import Partition
from publisher.runtime.context import Context
from publisher.transactions import wait_for_open_transactions
from publisher.transactions.wait_for_open_transactions import OpenTransactions

SETTINGS = KafkaSettings(bootstrap_servers="127.0.0.1:1", transaction_timeout_ms=1_000)
IN = ("in", 0)


class Cluster:
    """A written partition, in which readers of committed records stop at `stable` before its `end`.

    The group's positions in `undecided_places` belong to an open transaction. `errors` are raised first; `requests` records the
    requests for the group's positions.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.end, self.stable = 10, 5
        self.undecided_places: list[Partition] = []
        self.errors: list[KafkaError] = []
        self.requests: list[bool] = []
        self.closed = False
        monkeypatch.setattr(wait_for_open_transactions, "leaders", lambda _, name, __: {(name, 0): 1})
        monkeypatch.setattr(wait_for_open_transactions, "offsets", self._offsets)
        monkeypatch.setattr(wait_for_open_transactions, "GroupReader", lambda *_, **__: self)
        monkeypatch.setattr(clients, "admin", lambda *_: None)

    def undecided(self, _: list[Partition], *, singly: bool) -> list[Partition]:
        self.requests.append(singly)
        return self.undecided_places

    def close(self) -> None:
        self.closed = True

    def wait(self, *meanwhile: Callable[[], Any], sweep_seconds: float = 60.0) -> int:
        """Wait while these calls are made one after the other, and return the number of calls made."""
        calls, calls_made = iter(meanwhile), list[int]()

        def call_next() -> None:
            calls_made.append(1)
            next(calls)()

        OpenTransactions(SETTINGS, "x", ["out"], "n", ["in"], sweep_seconds=sweep_seconds).wait(
            Context(raise_if_cancelled=call_next)
        )
        return len(calls_made)

    def _offsets(self, _: Any, partitions: Any, __: Any, ___: float, isolation: Any = None) -> dict[Partition, int]:
        if self.errors:
            raise KafkaException(self.errors.pop(0))
        return dict.fromkeys(partitions, self.stable if isolation == IsolationLevel.READ_COMMITTED else self.end)

    def decide(self, later: int = 0) -> None:
        """End the open transactions, and add this number of records of later ones."""
        self.stable, self.end = self.end, self.end + later


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def test_only_transactions_open_at_the_call_are_waited_for(cluster: Cluster) -> None:
    assert cluster.wait(lambda: None, lambda: cluster.decide(later=10), lambda: None) == 2
    assert cluster.wait(cluster.decide) == 1, "the end as it is now"
    assert cluster.closed


def test_the_groups_positions_are_requested_when_the_records_are_decided(cluster: Cluster) -> None:
    cluster.undecided_places = [IN]
    assert cluster.wait(cluster.decide, lambda: None, cluster.undecided_places.clear) == 3
    assert cluster.requests == [False, True, True]


def test_unavailable_brokers_are_asked_again_and_a_stop_ends_the_wait(cluster: Cluster) -> None:
    cluster.errors = [KafkaError(KafkaError._TRANSPORT), KafkaError(KafkaError.LEADER_NOT_AVAILABLE)]
    cluster.decide()
    assert cluster.wait(lambda: None, lambda: None, lambda: None) == 2

    def stop() -> None:
        raise Aborted("asked to stop")

    cluster.stable = 5
    with pytest.raises(Aborted, match="asked to stop"):
        cluster.wait(stop)


def test_a_missing_right_is_reported_at_once(cluster: Cluster) -> None:
    cluster.errors = [KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)]
    with pytest.raises(NotAllowed, match="denies access to the state of open transactions"):
        cluster.wait()


def test_a_transaction_open_beyond_its_timeout_is_logged_as_an_error_with_its_position(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        cluster.wait(cluster.decide, sweep_seconds=-1.0)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "a transaction is open in out[0] from offset 5 on" in caplog.text
