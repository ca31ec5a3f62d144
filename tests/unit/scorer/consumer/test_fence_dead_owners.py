"""The open transactions that a successor ends before it reads: those of owners that are no longer members of the group."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import create_autospec

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from publisher.kafka import clients
from publisher.runtime.context import Context
from scorer.consumer import fence_dead_owners
from scorer.consumer.fence_dead_owners import DeadOwners
from scorer.consumer.offset_metadata import OffsetMetadata
from tests.unit.scorer.consumer.group import TOPIC
from tests.unit.scorer.worker.looped import SETTINGS

PARTITIONS = [TopicPartition(TOPIC, number) for number in range(4)]
A, B, C = (f"{SETTINGS.name}.{replica}" for replica in "abc")


def member(owner: str) -> str:
    return f"id of {owner}" if owner else ""


class Cluster:
    """A scripted cluster.

    `owners` are the owners of the partitions, by number; the member id of an owner is `id of <owner>`. `living` has the client
    id of each member by member id. `fenced` has the prefixes of the fenced ids, one list per call.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.owners = [A, B, C, ""]
        self.living = {member(A): A, member(B): B}
        self.unavailable: set[str] = set()
        self.requested: list[int] = []
        self.fenced: list[list[str]] = []
        admin = create_autospec(AdminClient, instance=True)
        admin.list_topics.side_effect = lambda name, **_: self._respond("topics", name)
        monkeypatch.setattr(fence_dead_owners, "GroupReader", lambda *_, **__: self)
        monkeypatch.setattr(fence_dead_owners, "client_ids_by_member", lambda *_: self._respond("members"))
        monkeypatch.setattr(fence_dead_owners, "fence", lambda _, prefixes, __: self.fenced.append(list(prefixes)))
        monkeypatch.setattr(clients, "admin", lambda *_: admin)

    def committed(self, places: Any, _: float, *, allow_partial: bool) -> list[TopicPartition]:
        assert allow_partial, "one partition without offsets must not hide the others"
        self.requested = [number for _, number in places]
        self._respond("offsets")
        marks = {n: OffsetMetadata(self.owners[n], member=member(self.owners[n])) for n in self.requested}
        return [TopicPartition(TOPIC, n, 5, mark.encode()) for n, mark in marks.items()]

    def close(self) -> None: ...

    def _respond(self, request: str, name: str = "") -> Any:
        if request in self.unavailable:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        partitions = dict.fromkeys(range(len(PARTITIONS)))
        return self.living if request == "members" else SimpleNamespace(topics={name: SimpleNamespace(partitions=partitions)})


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def prefix(*owners: str) -> list[str]:
    return [SETTINGS.transactional_prefix(owner) for owner in owners]


def dead(*owners: str) -> DeadOwners:
    return DeadOwners(frozenset(owners), frozenset(map(member, owners)))


def test_only_open_transactions_of_dead_owners_are_ended(cluster: Cluster) -> None:
    assert fence_dead_owners.fence_dead_owners(SETTINGS, PARTITIONS) == dead(C)
    cluster.living = {}
    assert fence_dead_owners.fence_dead_owners(SETTINGS, PARTITIONS[:3], {C}) == dead(B, C)
    assert cluster.fenced == [prefix(C), prefix(B)]


def test_an_owner_that_has_joined_again_is_not_fenced_and_its_earlier_member_id_is_dead(cluster: Cluster) -> None:
    """Its new process has ended the transactions of the earlier one."""
    cluster.living = {member(A): A, "another id": B, member(C): C}
    assert fence_dead_owners.fence_dead_owners(SETTINGS, PARTITIONS) == DeadOwners(members=frozenset({member(B)}))
    assert cluster.fenced == [[]]


def test_no_owner_is_fenced_if_all_have_shut_down_cleanly(cluster: Cluster) -> None:
    cluster.owners = [A, "", "", ""]
    cluster.unavailable = {"members"}
    assert fence_dead_owners.fence_dead_owners(SETTINGS, PARTITIONS) == DeadOwners(), "the members are not requested"
    assert cluster.fenced == [[]]


@pytest.mark.parametrize("failing_request", ["offsets", "members"])
def test_no_owner_is_fenced_if_the_last_owners_are_unknown(cluster: Cluster, failing_request: str) -> None:
    cluster.unavailable = {failing_request}
    assert fence_dead_owners.fence_dead_owners(SETTINGS, PARTITIONS) == DeadOwners()
    assert cluster.fenced == []


def wait_through_checks(between: Callable[[], object] = lambda: None) -> list[str]:
    """Wait through three checks of the context, with an action in between. Return the checks of the owner."""
    calls: list[str] = []

    def wait(context: Context) -> None:
        for _ in range(3):
            context.check()
            between()

    fence_dead_owners.wait_for_foreign_transactions(SETTINGS, wait, Context(raise_if_cancelled=lambda: calls.append("waiting")))
    return calls


def test_each_dead_owner_is_fenced_once_during_the_wait_for_foreign_transactions(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fence_dead_owners, "CHECK_SECONDS", 0.0)
    calls = wait_through_checks(lambda: cluster.living.pop(member(B), None))
    assert calls == ["waiting"] * 3
    assert cluster.requested == [0, 1, 2, 3], "all partitions of the input"
    assert cluster.fenced == [prefix(C), prefix(B), []]


def test_checks_are_spaced_and_continue_while_no_broker_returns_the_partitions(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fence_dead_owners, "CHECK_SECONDS", 3_600.0)
    assert wait_through_checks() == ["waiting"] * 3
    assert cluster.fenced == [prefix(C)]
    cluster.unavailable = {"topics"}
    assert wait_through_checks() == ["waiting"] * 3
    assert (cluster.requested, cluster.fenced[1:]) == ([], [[]])
