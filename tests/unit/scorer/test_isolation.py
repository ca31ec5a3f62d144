"""Messages kept aside: nothing is lost, doubled or reordered within a partition."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scorer.isolation import Isolation


class Message:
    """Only what the isolation looks at."""

    def __init__(self, partition: int, offset: int) -> None:
        self.place, self.offset = partition, offset

    def topic(self) -> str:
        return "events"

    def partition(self) -> int:
        return self.place


def messages(partitions: list[int]) -> list[Any]:
    return [Message(partition, offset) for offset, partition in enumerate(partitions)]


@given(partitions=st.lists(st.integers(0, 3)), isolated=st.sets(st.integers(0, 3)))
def test_isolated_events_come_one_at_a_time_and_in_order(partitions: list[int], isolated: set[int]) -> None:
    under_test = Isolation()
    under_test.partitions = {("events", number) for number in isolated}
    others: list[Any] = under_test.split(messages(partitions))
    assert [m.offset for m in others] == [o for o, p in enumerate(partitions) if p not in isolated]
    assert under_test.waiting == {("events", p) for p in partitions if p in isolated}
    came: dict[int, list[int]] = {number: [] for number in isolated}
    turns = 0
    while under_test.waiting:
        batch: list[Any] = under_test.next()
        assert len(batch) == (turns % 2 == 0)
        turns += 1
        for message in batch:
            came[message.place].append(message.offset)
    assert came == {number: [o for o, p in enumerate(partitions) if p == number] for number in isolated}


def test_what_waits_when_the_isolation_ends_comes_together() -> None:
    under_test = Isolation()
    under_test.partitions = {("events", 1)}
    under_test.split(messages([1, 1, 1]))
    assert len(under_test.next()) == 1
    under_test.partitions.discard(("events", 1))
    assert not under_test.next()
    assert len(under_test.next()) == 2
    assert not under_test.waiting


def test_what_is_read_again_is_forgotten() -> None:
    under_test = Isolation()
    under_test.partitions = {("events", 1)}
    under_test.split(messages([1, 1]))
    under_test.forget([("events", 1), ("events", 2)])
    assert not under_test.next()
    assert under_test.partitions == {("events", 1)}
