"""Records up to the end of their topic are merged by time and keep the order of each partition."""

from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from publisher.errors import Fatal
from publisher.kafka import topic_follower
from publisher.kafka.partitions import Offsets, Partition
from publisher.kafka.topic_follower import TopicFollower

TOPIC = "scores"
End = int
"""The end of the partition of that number."""


def record(partition: int, offset: int, milliseconds: int) -> Message:
    return Message(topic=TOPIC, partition=partition, offset=offset, timestamp=(1, milliseconds))


class Scripted(TopicFollower):
    """Yields these records and ends, a given number in each poll."""

    def __init__(self, partitions: int, messages: Sequence[Message | End], at_a_time: int = 1) -> None:
        self.unread: set[Partition] = {(TOPIC, number) for number in range(partitions)}
        self._open: Offsets = {}
        self._batches = [messages[at : at + at_a_time] for at in range(0, len(messages), at_a_time)]

    def _written(self) -> Offsets:
        return {}

    def poll(self, seconds: float = 0.0) -> Iterator[Message]:  # noqa: ARG002
        for message in self._batches.pop(0) if self._batches else ():
            if isinstance(message, Message):
                yield message
            else:
                self.unread.discard((TOPIC, message))


def read(partitions: int, *messages: Message | End, at_a_time: int = 1) -> list[tuple[int | None, int | None, int]]:
    """Return the partition, offset and time of each record in the order of arrival."""
    merged = Scripted(partitions, messages, at_a_time).oldest_first()
    return [(message.partition(), message.offset(), message.timestamp()[1]) for message in merged]


def test_partitions_that_are_read_one_by_one_are_merged_by_time() -> None:
    merged = read(2, record(0, 0, 10), record(0, 1, 30), 0, record(1, 0, 20), record(1, 1, 40), 1)
    assert [milliseconds for *_, milliseconds in merged] == [10, 20, 30, 40]


def test_a_partition_with_decreasing_times_keeps_its_order() -> None:
    merged = read(2, record(0, 0, 50), record(0, 1, 10), 0, record(1, 0, 20), 1)
    assert merged == [(1, 0, 20), (0, 0, 50), (0, 1, 10)]


def test_a_record_is_yielded_as_soon_as_no_older_one_can_follow() -> None:
    messages = [record(0, 0, 10), record(1, 0, 20), record(0, 1, 30)]
    assert next(Scripted(2, messages).oldest_first()) is messages[0]


def test_the_buffer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_follower, "HELD_RECORDS", 2)
    messages = [record(0, at, at) for at in range(3)]
    assert next(Scripted(2, messages).oldest_first()) is messages[0]


def test_a_silent_partition_ends_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_follower, "SILENCE_SECONDS", 0.01)
    merged = Scripted(2, [record(0, 0, 10), 0]).oldest_first()
    assert next(merged).offset() == 0  # records that were read are yielded before the error
    with pytest.raises(Fatal, match="topic scores cannot be read to its end"):
        next(merged)


@given(st.lists(st.lists(st.integers(0, 9), max_size=5), min_size=1, max_size=4), st.integers(1, 7))
def test_every_record_is_yielded_once_in_the_order_of_its_partition(times: list[list[int]], at_a_time: int) -> None:
    logs = [[(number, at, time) for at, time in enumerate(log)] for number, log in enumerate(times)]
    messages: list[Message | End] = []
    for number, log in enumerate(logs):
        messages += [record(*row) for row in log]
        messages.append(number)
    merged = read(len(logs), *messages, at_a_time=at_a_time)
    assert [[row for row in merged if row[0] == number] for number in range(len(logs))] == logs
    if all(log == sorted(log) for log in times):
        assert [time for *_, time in merged] == sorted(time for log in times for time in log)
