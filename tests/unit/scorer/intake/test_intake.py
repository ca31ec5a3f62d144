"""What a batch stops at, by what the client has to give; which partitions are not read, and who is told of it."""

from types import SimpleNamespace
from unittest.mock import MagicMock, create_autospec

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from scorer.events.batch import End
from scorer.intake.beginnings import Beginning, Beginnings
from scorer.intake.columns import BATCH_BYTES
from scorer.intake.consumer import LOOK_SECONDS, Intake
from scorer.intake.marks import Mark
from scorer.intake.pauses import Pauses


def metadata(partitions: dict[int, SimpleNamespace]) -> SimpleNamespace:
    """What a broker tells of the topic flights."""
    return SimpleNamespace(topics={"flights": SimpleNamespace(error=None, partitions=partitions)})


def message(offset: int, size: int = 2) -> Message:
    """An event of so many bytes."""
    return Message(topic="flights", partition=0, offset=offset, key=None, value=b"x" * size, timestamp=(1, 1_000), headers=None)


@pytest.mark.parametrize(
    ("there", "asked", "size", "end", "taken"),
    [
        (3, 10, 2, "empty", 3),
        (10, 10, 2, "events", 10),
        (1, 1, 2, "events", 1),
        (8, 10, BATCH_BYTES // 4, "bytes", 4),
        (1, 10, BATCH_BYTES, "bytes", 1),
    ],
)
def test_a_batch_says_what_it_stopped_at(there: int, asked: int, size: int, end: End, taken: int) -> None:
    waiting = [message(offset, size) for offset in range(there)]
    consumer = create_autospec(Consumer, instance=True)
    consumer.poll.side_effect = lambda _: waiting.pop(0)
    consumer.consume.side_effect = lambda most, _: [waiting.pop(0) for _ in range(min(most, len(waiting)))]
    beginnings = create_autospec(Beginnings, instance=True)
    beginnings.made_again.return_value = set()
    intake = Intake(consumer, ["flights"], beginnings, MagicMock(), MagicMock(), MagicMock())
    intake.epochs = {("flights", 0): 1}
    batch = intake.take(1.0, lambda _: asked)
    assert batch is not None
    assert (batch.end, len(batch)) == (end, taken)


def test_a_partition_is_read_again_when_no_reason_holds_it_any_more() -> None:
    paused: set[int] = set()
    consumer = create_autospec(Consumer, instance=True)
    consumer.pause.side_effect = lambda which: paused.update(p.partition for p in which)
    consumer.resume.side_effect = lambda which: paused.difference_update(p.partition for p in which)
    pauses = Pauses(consumer)
    first, second = ("flights", 0), ("flights", 1)
    pauses.hold([first, second], "away")
    pauses.hold([first], "revision")
    pauses.release([first, second], "away")
    assert paused == {0}
    pauses.release([second], "revision")
    assert pauses.partitions == {first}
    pauses.release([first], "revision")
    assert paused == set()
    pauses.hold([first], "out of range")
    pauses.forget([first])
    assert paused == set()


def test_partitions_without_a_leader_are_told_until_they_have_one() -> None:
    consumer = create_autospec(Consumer, instance=True)
    intake = Intake(consumer, ["flights"], create_autospec(Beginnings, instance=True), MagicMock(), MagicMock(), MagicMock())
    intake.epochs = {("flights", 0): 1, ("flights", 1): 1}
    told = []
    for second, leader in enumerate((2, -1, -1, 2)):
        partitions = {0: SimpleNamespace(leader=1), 1: SimpleNamespace(leader=leader), 2: SimpleNamespace(leader=-1)}
        consumer.list_topics.return_value = SimpleNamespace(
            topics={"flights": SimpleNamespace(error=None, partitions=partitions)}
        )
        intake.look_again(float(second) * LOOK_SECONDS)
        told.append(sorted(intake.outside))
    assert told == [[], [("flights", 1)], [("flights", 1)], []]


def test_a_partition_without_a_leader_and_without_a_position_is_held_until_it_begins() -> None:
    consumer, beginnings = create_autospec(Consumer, instance=True), create_autospec(Beginnings, instance=True)
    led = {0: Beginning("start", TopicPartition("flights", 0, 7), Mark(topic_id="x"))}
    beginnings.of.side_effect = lambda _, committed: [led[p.partition] for p in committed if p.partition in led]
    beginnings.made_again.return_value = set()
    consumer.committed.side_effect = lambda partitions, timeout: partitions  # noqa: ARG005
    consumer.poll.return_value = None
    intake = Intake(consumer, ["flights"], beginnings, MagicMock(), MagicMock(), MagicMock())
    assign = consumer.subscribe.call_args.kwargs["on_assign"]
    assign(consumer, [TopicPartition("flights", 0), TopicPartition("flights", 1)])
    (assigned,) = consumer.incremental_assign.call_args.args
    assert {p.partition: p.offset for p in assigned} == {0: 7, 1: OFFSET_BEGINNING}
    assert [p.partition for (held,), _ in consumer.pause.call_args_list for p in held] == [1]
    assert (intake.arrived, set(intake.committed)) == ({("flights", 0)}, {("flights", 0)})

    led[1] = Beginning("added", TopicPartition("flights", 1, 3), Mark(topic_id="x"))
    partitions = {0: SimpleNamespace(leader=1), 1: SimpleNamespace(leader=1)}
    consumer.list_topics.return_value = metadata(partitions)
    intake.look_again(1.0)
    intake.take(0.0, lambda _: 1)
    assert intake.arrived == {("flights", 0), ("flights", 1)}
    assert intake.committed == {("flights", 0): 7, ("flights", 1): 3}
    assert [(p.partition, p.offset) for (p,), _ in consumer.seek.call_args_list] == [(1, 3)]
    assert [p.partition for (free,), _ in consumer.resume.call_args_list for p in free] == [1]
