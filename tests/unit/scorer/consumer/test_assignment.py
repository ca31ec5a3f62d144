"""The assigned partitions: their offsets and metadata, their start positions, and the end of a batch."""

import pytest
from confluent_kafka import TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from publisher.kafka.partitions import Partition
from scorer.consumer.assignment import AssignedPartitions
from scorer.consumer.batch_fetcher import BATCH_BYTES, chunk
from scorer.consumer.offset_metadata import OffsetMetadata
from scorer.consumer.start_offsets import AnswerStartOffsets, StartPosition, StartReason, decide_start
from scorer.decoding.batch import Batch, End
from tests.unit.scorer.consumer.group import Group, event

PARTITION_0, PARTITION_1 = ("flights", 0), ("flights", 1)
SCORED = OffsetMetadata("n.a", 4, "1.0.0", "sha256:a")


def assigned(*places: Partition, after: AnswerStartOffsets | None = None) -> AssignedPartitions:
    partitions = AssignedPartitions()
    partitions.assign(StartPosition("position", TopicPartition(*p, 5), OffsetMetadata(topic_id="one"), after) for p in places)
    return partitions


def batch_of(partitions: AssignedPartitions, *places: Partition) -> Batch:
    count = len(places)
    columns = [topic for topic, _ in places], [number for _, number in places]
    batch = Batch(*columns, [5] * count, [None] * count, [None] * count, [0] * count, [None] * count)
    batch.epochs = partitions.epochs(batch.reached)
    batch.leader_epochs = dict.fromkeys(batch.reached)
    return batch


def test_offsets_have_metadata_with_the_id_of_their_topic() -> None:
    partitions = assigned(PARTITION_0, PARTITION_1)
    batch = batch_of(partitions, PARTITION_0, PARTITION_1)
    positions = partitions.offsets(batch, SCORED)
    assert [(p.partition, p.offset) for p in positions] == [(0, 6), (1, 6)]
    assert {OffsetMetadata.decode(p.metadata) for p in positions} == {
        OffsetMetadata("n.a", 4, "1.0.0", "sha256:a", topic_id="one")
    }
    assert [(p.partition, p.offset) for p in partitions.offsets(batch, SCORED, {PARTITION_1: 6})] == [(1, 6)]


def test_a_commit_counts_only_for_partitions_that_stayed_assigned() -> None:
    partitions = assigned(PARTITION_0, PARTITION_1, after=AnswerStartOffsets([1], [2]))
    batch = batch_of(partitions, PARTITION_0, PARTITION_1)
    partitions.remove([PARTITION_1])
    partitions.assign([StartPosition("position", TopicPartition(*PARTITION_1, 5), OffsetMetadata(topic_id="one"))])
    partitions.commit(batch, SCORED)
    assert partitions.committed() == {PARTITION_0: 6, PARTITION_1: 5}
    assert partitions.metadata(PARTITION_0).served == SCORED.served
    assert partitions.metadata(PARTITION_1) == OffsetMetadata(topic_id="one")
    assert partitions.answers_from(PARTITION_0) is None
    assert not partitions.are_current(batch.epochs)


def test_a_partition_is_level_at_its_end_once_all_earlier_events_are_answered() -> None:
    partitions = assigned(PARTITION_0, PARTITION_1)
    partitions.advance_to_end({PARTITION_0: 7, ("flights", 9): 3}, 1_000)
    assert partitions.level_ms() == {PARTITION_0: 1_000, PARTITION_1: 0}
    batch = batch_of(partitions, PARTITION_1)
    partitions.read(batch.reached)
    partitions.advance_to_end({PARTITION_1: 8}, 2_000)  # with an event in flight
    assert partitions.level_ms() == {PARTITION_0: 1_000, PARTITION_1: 0}
    partitions.commit(batch, SCORED)
    partitions.advance_to_end({PARTITION_1: 9}, 3_000)
    assert partitions.level_ms() == {PARTITION_0: 1_000, PARTITION_1: 3_000}
    assert {
        (p.partition, p.offset): OffsetMetadata.decode(p.metadata).owner for p in partitions.positions_without_events("n.b")
    } == {
        (0, 7): "n.b",
        (1, 9): "n.b",
    }


def test_answer_offsets_of_a_recreated_topic_are_known_until_a_commit() -> None:
    partitions = assigned(PARTITION_0, after=AnswerStartOffsets([1], [2]))
    partitions.rewind(StartPosition("position", TopicPartition(*PARTITION_0, 5), OffsetMetadata(topic_id="one")))
    assert partitions.answers_from(PARTITION_0) == AnswerStartOffsets([1], [2])


def test_a_partition_that_is_not_assigned_has_no_state() -> None:
    partitions = assigned(PARTITION_0)
    partitions.remove([PARTITION_0, PARTITION_1])
    assert (len(partitions), PARTITION_0 in partitions, partitions.next(PARTITION_0)) == (0, False, None)
    assert partitions.metadata(PARTITION_0) == OffsetMetadata()
    assert partitions.answers_from(PARTITION_0) is None
    assert partitions.arrivals() == set()
    recorded = assigned(PARTITION_0)  # its position counts if the group has none
    requested = TopicPartition(*PARTITION_0, -1_001), TopicPartition(*PARTITION_0, 3), TopicPartition(*PARTITION_1, -1_001)
    assert [recorded.position_or_recorded(position).offset for position in requested] == [5, 3, -1_001]


NO_OFFSET = -1_001


@pytest.mark.parametrize(
    ("offset", "committed_id", "scored_ids", "visited", "expected"),
    [
        (7, "new", {"new"}, True, "position"),
        (7, "", set(), True, "position"),
        (0, "new", {"old"}, True, "position"),
        (7, "old", {"old"}, True, "recreated"),
        (7, "old", set(), False, "recreated"),
        (NO_OFFSET, "", {"old"}, False, "recreated"),
        (NO_OFFSET, "", {"old", "new"}, False, "expired"),
        (NO_OFFSET, "", {"new"}, True, "expired"),
        (NO_OFFSET, "", {""}, False, "expired"),
        (NO_OFFSET, "", {"", "old"}, True, "expired"),
        (NO_OFFSET, "", set(), True, "added"),
        (NO_OFFSET, "", set(), False, "start"),
    ],
)
def test_start_of_a_partition(
    offset: int, committed_id: str, scored_ids: set[str], visited: bool, expected: StartReason
) -> None:
    assert decide_start(offset, committed_id, "new", scored_ids, visited) == expected


@pytest.mark.parametrize(
    ("available", "requested", "size", "end", "expected_count"),
    [
        (3, 10, 2, "empty", 3),
        (10, 10, 2, "events", 10),
        (1, 1, 2, "events", 1),
        (8, 10, BATCH_BYTES // 4, "bytes", 4),
        (1, 10, BATCH_BYTES, "bytes", 1),
    ],
)
def test_a_batch_has_the_reason_of_its_end(available: int, requested: int, size: int, end: End, expected_count: int) -> None:
    group = Group()
    group.assign(0)
    group.waiting += [event(offset, size=size) for offset in range(available)]
    batch = group.intake.take(1.0, lambda _: requested)
    assert batch is not None
    assert (batch.end, len(batch)) == (end, expected_count)


@given(sizes=st.lists(st.integers(0, 3 * BATCH_BYTES), min_size=1, max_size=200), max_events=st.integers(1, 200))
def test_a_batch_has_at_least_one_event_and_no_more_bytes_than_expected(sizes: list[int], max_events: int) -> None:
    """If the largest event is known, only the last event of the batch may exceed the limit."""
    largest, batch_sizes = max(sizes), [sizes[0]]
    while (chunk_length := chunk(max_events - len(batch_sizes), sum(batch_sizes), largest)) > 0:
        chunk_sizes = sizes[len(batch_sizes) : len(batch_sizes) + chunk_length]
        batch_sizes += chunk_sizes
        if len(chunk_sizes) < chunk_length:
            break
    assert 1 <= len(batch_sizes) <= max_events
    assert sum(batch_sizes[:-1]) <= BATCH_BYTES


def test_small_events_are_read_in_one_call() -> None:
    assert chunk(4_095, 200, 200) == 4_095
    assert chunk(4_095, 0, 0) == 4_095
    assert chunk(0, 200, 200) == 0
