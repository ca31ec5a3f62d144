"""Records that are passed to a producer in parts."""

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from publisher.transactions.rejected_records import RejectedRecords
from publisher.transactions.session import PackedRecordBatch, Record, RecordParts


def records(topic: str, count: int) -> list[Record]:
    return [(topic, b"%d" % number, None, 0, 0, None) for number in range(count)]


class Packed(PackedRecordBatch):
    """A batch whose records the producer accepts in one call, except for one at `full`."""

    def __init__(self, listed: Sequence[Record], full: int | None = None) -> None:
        self.listed = list(listed)
        self.full = full

    def write(self, producer: Any, first: int) -> int:
        stop = self.full if self.full is not None and self.full >= first else len(self)
        producer.written += self.listed[first:stop]
        return stop

    def __len__(self) -> int:
        return len(self.listed)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.listed)

    def __getitem__(self, at: Any) -> Any:
        return self.listed[at]


def producer() -> Any:
    written: list[Record] = []

    def produce(topic: str, value: bytes, key: Any, partition: int, _report: Any, _: Any, timestamp: int, headers: Any) -> None:
        written.append((topic, value, key, partition, timestamp, headers))

    return SimpleNamespace(handle=1, written=written, produce=produce)


def test_parts_are_one_sequence_without_empty_parts() -> None:
    first, second = records("a", 2), records("b", 3)
    parts = RecordParts([first, [], Packed(second)])
    assert len(parts.parts) == 2
    assert (len(parts), list(parts), parts[2], parts[1:3]) == (5, first + second, second[0], [first[1], second[0]])


def test_the_parts_are_produced_in_order_and_packed_ones_in_one_call_each() -> None:
    first, second, last = records("a", 3), records("b", 3), records("c", 1)
    target = producer()
    RejectedRecords().produce(target, RecordParts([Packed(first), Packed(second, full=1), last]), None, lambda: None)
    assert target.written == first + second + last


def test_a_record_of_a_part_that_the_client_rejects_is_noted() -> None:
    first, second = records("a", 2), records("b", 2)
    target = producer()

    def refuse(*_: Any) -> None:
        raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))

    target.produce = refuse
    rejected = RejectedRecords()
    try:
        rejected.produce(target, RecordParts([Packed(first), Packed(second, full=1)]), None, lambda: None)
    except KafkaException:
        assert rejected.error().records == [second[1]]
    else:
        raise AssertionError("the client's error must be raised")
    assert target.written == [*first, second[0]]
