"""What is asked again while no broker tells the committed offsets, and what is not."""

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

HERE = TopicPartition("flights", 0, 7)


def failing(code: int) -> KafkaException:
    return KafkaException(KafkaError(code))


def metadata(partitions: dict[int, SimpleNamespace]) -> SimpleNamespace:
    return SimpleNamespace(topics={"flights": SimpleNamespace(error=None, partitions=partitions)})


class Told:
    """A consumer that answers so, one after the other, and how often its owner was called while it waited."""

    def __init__(self, *answers: Any) -> None:
        self.waits = 0
        self.consumer = create_autospec(Consumer, instance=True)
        self.asking = create_autospec(AdminClient, instance=True)
        self.asking.list_topics.side_effect = KafkaException(KafkaError(KafkaError._TRANSPORT))
        self.consumer.committed.side_effect = list(answers)
        self.consumer.offsets_for_times.side_effect = list(answers)

    @property
    def context(self) -> Context:
        """A context that counts its checks."""
        return Context(beat=self._count)

    def _count(self) -> None:
        self.waits += 1

    def committed(self, context: Context | None = None) -> list[TopicPartition]:
        return group_offsets.committed(self.consumer, [HERE], context or self.context)


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_offsets, "PAUSE_SECONDS", 0.0)


@pytest.mark.parametrize("code", sorted(ANSWERED_LATER))
def test_brokers_that_are_away_are_asked_again(code: int) -> None:
    told = Told(failing(code), failing(code), [HERE])
    assert told.committed() == [HERE]
    assert told.waits == 2


def test_the_edges_are_asked_again_too() -> None:
    told = Told(failing(KafkaError._TIMED_OUT), [HERE])
    assert group_offsets.edges(told.consumer, told.asking, [("flights", 0)], OFFSET_END, told.context) == {("flights", 0): 7}
    assert group_offsets.edges(told.consumer, told.asking, [], OFFSET_END, told.context) == {}
    assert told.waits == 1


def test_the_edges_of_partitions_without_a_leader_are_left_out() -> None:
    told = Told([HERE])
    partitions = {0: SimpleNamespace(leader=2), 1: SimpleNamespace(leader=-1)}
    told.asking.list_topics.side_effect = None
    told.asking.list_topics.return_value = SimpleNamespace(
        topics={"flights": SimpleNamespace(error=None, partitions=partitions)}
    )
    found = group_offsets.edges(told.consumer, told.asking, [("flights", 0), ("flights", 1)], OFFSET_END, told.context)
    assert found == {("flights", 0): 7}
    ((asked,), _) = told.consumer.offsets_for_times.call_args
    assert not told.consumer.list_topics.called, "within a rebalance callback that would end the process"
    assert [p.partition for p in asked] == [0]


def test_a_stop_ends_the_waiting_and_after_a_while_it_is_for_another_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopping() -> None:
        raise Aborted("asked to stop")

    told = Told(failing(KafkaError._TRANSPORT), [HERE])
    with pytest.raises(Aborted, match="asked to stop"):
        told.committed(Context(raise_if_cancelled=stopping))
    monkeypatch.setattr(group_offsets, "RETRY_SECONDS", -1.0)
    with pytest.raises(MemberLost, match="the group's offsets cannot be read"):
        Told(failing(KafkaError._TIMED_OUT), [HERE]).committed()


@pytest.mark.parametrize(
    ("code", "error"), [(KafkaError.UNKNOWN_MEMBER_ID, Evicted), (KafkaError.GROUP_AUTHORIZATION_FAILED, Fatal)]
)
def test_a_refusal_is_not_asked_again(code: int, error: type[Exception]) -> None:
    told = Told(failing(code), [HERE])
    with pytest.raises(error):
        told.committed()
    assert told.waits == 0
