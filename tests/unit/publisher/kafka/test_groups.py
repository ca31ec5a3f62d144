"""Which positions of a group are undecided, and what is missing where a broker refuses."""

from collections.abc import Callable
from unittest.mock import MagicMock, create_autospec

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from publisher.errors import NotAllowed, Retriable
from publisher.kafka import clients as kafka
from publisher.kafka.clients import KafkaSettings
from publisher.kafka.groups import NO_PARTITION, ConsumerGroups, GroupPosition, GroupReader
from publisher.kafka.partitions import Partition

SETTINGS = KafkaSettings(bootstrap_servers="nowhere:9092")
FLIGHTS: list[Partition] = [("flights", number) for number in range(5)]

MakeReader = Callable[[set[int]], GroupReader]


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> MakeReader:
    """A reader of a group in which the positions of these partitions are undecided."""

    def made(undecided: set[int]) -> GroupReader:
        def committed(partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:  # noqa: ARG001
            if undecided & {p.partition for p in partitions}:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            return partitions

        consumer = create_autospec(Consumer, instance=True)
        consumer.committed.side_effect = committed
        monkeypatch.setattr(kafka, "reader", lambda *_, **__: consumer)
        return GroupReader(SETTINGS, "c", "g", decided=True)

    return made


def test_where_all_are_decided_none_is_asked_for_alone(reader: MakeReader) -> None:
    assert reader(set()).undecided(FLIGHTS, singly=False) == []
    assert reader({7}).undecided([], singly=False) == []


def test_the_decided_are_left_out_call_by_call(reader: MakeReader) -> None:
    group = reader({1, 3})
    left = group.undecided(FLIGHTS, singly=False)
    assert left == FLIGHTS
    for expected in ([2, 3, 4, 1], [4, 1, 3], [3, 1], [1, 3]):
        left = group.undecided(left, singly=True)
        assert [number for _, number in left] == expected


def test_a_coordinator_that_is_away_says_nothing_of_transactions(reader: MakeReader) -> None:
    with pytest.raises(KafkaException, match="coordinator does not answer"):
        reader({NO_PARTITION}).undecided(FLIGHTS, singly=False)


@pytest.mark.parametrize(
    ("code", "error", "told"),
    [
        (KafkaError.GROUP_AUTHORIZATION_FAILED, NotAllowed, "no right to Describe on group 'g'"),
        (KafkaError._TRANSPORT, Retriable, "eu does not answer"),
    ],
)
def test_a_refusal_names_the_right(code: int, error: type[Exception], told: str) -> None:
    admin = MagicMock()
    admin.describe_consumer_groups.return_value["g"].result.side_effect = KafkaException(KafkaError(code))
    with pytest.raises(error, match=told):
        ConsumerGroups(admin, SETTINGS, "eu", 1.0).members("g")


def test_a_group_that_does_not_exist_has_no_members() -> None:
    admin = MagicMock()
    admin.describe_consumer_groups.return_value["g"].result.side_effect = KafkaException(
        KafkaError(KafkaError.GROUP_ID_NOT_FOUND)
    )
    assert ConsumerGroups(admin, SETTINGS, "eu", 1.0).members("g") == []


def test_a_position_without_metadata_is_moved_too() -> None:
    admin = MagicMock()
    ConsumerGroups(admin, SETTINGS, "eu", 1.0).move("g", [GroupPosition("flights", 0, 7), GroupPosition("flights", 1, 8, "m")])
    (((request,),), _) = admin.alter_consumer_group_offsets.call_args
    assert [(p.partition, p.offset, p.metadata or "") for p in request.topic_partitions] == [(0, 7, ""), (1, 8, "m")]
