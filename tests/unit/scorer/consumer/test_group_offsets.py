"""The requests for committed offsets and log ends that are repeated while brokers are unavailable."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import create_autospec

import pytest
from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from publisher.errors import Aborted, Evicted, Fatal, MemberLost
from publisher.kafka.error_codes import ANSWERED_LATER
from publisher.runtime.context import Context
from scorer.consumer import group_offsets

POSITION = TopicPartition("flights", 0, 7)


def failing(code: int) -> KafkaException:
    return KafkaException(KafkaError(code))


def metadata(partitions: dict[int, SimpleNamespace]) -> SimpleNamespace:
    return SimpleNamespace(topics={"flights": SimpleNamespace(error=None, partitions=partitions)})


class ScriptedConsumer:
    """A consumer that returns these responses in turn. `checks` counts the checks of its context."""

    def __init__(self, *responses: Any) -> None:
        self.checks = 0
        self.consumer = create_autospec(Consumer, instance=True)
        self.admin = create_autospec(AdminClient, instance=True)
        self.admin.list_topics.side_effect = KafkaException(KafkaError(KafkaError._TRANSPORT))
        self.consumer.committed.side_effect = list(responses)
        self.consumer.offsets_for_times.side_effect = list(responses)

    @property
    def context(self) -> Context:
        """Return a context that counts its checks."""
        return Context(beat=self._count)

    def _count(self) -> None:
        self.checks += 1

    def committed(self, context: Context | None = None) -> list[TopicPartition]:
        return group_offsets.committed(self.consumer, [POSITION], context or self.context)


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_offsets, "PAUSE_SECONDS", 0.0)


@pytest.mark.parametrize("code", sorted(ANSWERED_LATER))
def test_requests_are_repeated_while_brokers_are_unavailable(code: int) -> None:
    scripted = ScriptedConsumer(failing(code), failing(code), [POSITION])
    assert scripted.committed() == [POSITION]
    assert scripted.checks == 2


def test_requests_for_log_ends_are_repeated_too() -> None:
    scripted = ScriptedConsumer(failing(KafkaError._TIMED_OUT), [POSITION])
    assert group_offsets.edges(scripted.consumer, scripted.admin, [("flights", 0)], OFFSET_END, scripted.context) == {
        ("flights", 0): 7
    }
    assert group_offsets.edges(scripted.consumer, scripted.admin, [], OFFSET_END, scripted.context) == {}
    assert scripted.checks == 1


def test_log_ends_of_partitions_without_a_leader_are_omitted() -> None:
    scripted = ScriptedConsumer([POSITION])
    partitions = {0: SimpleNamespace(leader=2), 1: SimpleNamespace(leader=-1)}
    scripted.admin.list_topics.side_effect = None
    scripted.admin.list_topics.return_value = SimpleNamespace(
        topics={"flights": SimpleNamespace(error=None, partitions=partitions)}
    )
    edges = group_offsets.edges(
        scripted.consumer, scripted.admin, [("flights", 0), ("flights", 1)], OFFSET_END, scripted.context
    )
    assert edges == {("flights", 0): 7}
    ((requested,), _) = scripted.consumer.offsets_for_times.call_args
    assert not scripted.consumer.list_topics.called, "list_topics within a rebalance callback ends the process"
    assert [p.partition for p in requested] == [0]


def test_a_stop_ends_the_wait_and_a_long_outage_ends_the_membership(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopping() -> None:
        raise Aborted("a stop was requested")

    scripted = ScriptedConsumer(failing(KafkaError._TRANSPORT), [POSITION])
    with pytest.raises(Aborted, match="a stop was requested"):
        scripted.committed(Context(raise_if_cancelled=stopping))
    monkeypatch.setattr(group_offsets, "RETRY_SECONDS", -1.0)
    with pytest.raises(MemberLost, match="the group's offsets cannot be read"):
        ScriptedConsumer(failing(KafkaError._TIMED_OUT), [POSITION]).committed()


@pytest.mark.parametrize(
    ("code", "error"), [(KafkaError.UNKNOWN_MEMBER_ID, Evicted), (KafkaError.GROUP_AUTHORIZATION_FAILED, Fatal)]
)
def test_a_refused_request_is_not_repeated(code: int, error: type[Exception]) -> None:
    scripted = ScriptedConsumer(failing(code), [POSITION])
    with pytest.raises(error):
        scripted.committed()
    assert scripted.checks == 0
