"""What is known of the partitions that are ours, how each begins, and what a batch of them stops at."""

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

HERE, THERE = ("flights", 0), ("flights", 1)
SCORED = OffsetMetadata("n.a", 4, "1.0.0", "sha256:a")


def assigned(*places: Partition, after: AnswerStartOffsets | None = None) -> AssignedPartitions:
    made = AssignedPartitions()
    made.assign(StartPosition("position", TopicPartition(*p, 5), OffsetMetadata(topic_id="one"), after) for p in places)
    return made


def taken(partitions: AssignedPartitions, *places: Partition) -> Batch:
    count = len(places)
    columns = [topic for topic, _ in places], [number for _, number in places]
    batch = Batch(*columns, [5] * count, [None] * count, [None] * count, [0] * count, [None] * count)
    batch.epochs = partitions.epochs(batch.reached)
    batch.leader_epochs = dict.fromkeys(batch.reached)
    return batch


def test_offsets_carry_the_mark_with_the_id_of_their_topic() -> None:
    partitions = assigned(HERE, THERE)
    batch = taken(partitions, HERE, THERE)
    whole = partitions.offsets(batch, SCORED)
    assert [(p.partition, p.offset) for p in whole] == [(0, 6), (1, 6)]
    assert {OffsetMetadata.decode(p.metadata) for p in whole} == {OffsetMetadata("n.a", 4, "1.0.0", "sha256:a", topic_id="one")}
    assert [(p.partition, p.offset) for p in partitions.offsets(batch, SCORED, {THERE: 6})] == [(1, 6)]


def test_a_commit_counts_only_where_the_partition_has_been_ours_since() -> None:
    partitions = assigned(HERE, THERE, after=AnswerStartOffsets([1], [2]))
    batch = taken(partitions, HERE, THERE)
    partitions.remove([THERE])
    partitions.assign([StartPosition("position", TopicPartition(*THERE, 5), OffsetMetadata(topic_id="one"))])
    partitions.commit(batch, SCORED)
    assert partitions.committed() == {HERE: 6, THERE: 5}
    assert partitions.metadata(HERE).served == SCORED.served
    assert partitions.metadata(THERE) == OffsetMetadata(topic_id="one")
    assert partitions.answers_from(HERE) is None
    assert not partitions.are_current(batch.epochs)


def test_a_partition_is_level_at_its_end_once_everything_before_is_answered() -> None:
    partitions = assigned(HERE, THERE)
    partitions.advance_to_end({HERE: 7, ("flights", 9): 3}, 1_000)
    assert partitions.level_ms() == {HERE: 1_000, THERE: 0}
    batch = taken(partitions, THERE)
    partitions.read(batch.reached)
    partitions.advance_to_end({THERE: 8}, 2_000)  # with an event in flight
    assert partitions.level_ms() == {HERE: 1_000, THERE: 0}
    partitions.commit(batch, SCORED)
    partitions.advance_to_end({THERE: 9}, 3_000)
    assert partitions.level_ms() == {HERE: 1_000, THERE: 3_000}
    assert {
        (p.partition, p.offset): OffsetMetadata.decode(p.metadata).owner for p in partitions.positions_without_events("n.b")
    } == {
        (0, 7): "n.b",
        (1, 9): "n.b",
    }


def test_answers_of_a_topic_made_again_are_named_until_one_is_committed() -> None:
    partitions = assigned(HERE, after=AnswerStartOffsets([1], [2]))
    partitions.rewind(StartPosition("position", TopicPartition(*HERE, 5), OffsetMetadata(topic_id="one")))
    assert partitions.answers_from(HERE) == AnswerStartOffsets([1], [2])


def test_of_a_partition_that_is_not_ours_nothing_is_known() -> None:
    partitions = assigned(HERE)
    partitions.remove([HERE, THERE])
    assert (len(partitions), HERE in partitions, partitions.next(HERE)) == (0, False, None)
    assert partitions.metadata(HERE) == OffsetMetadata()
    assert partitions.answers_from(HERE) is None
    assert partitions.arrivals() == set()
    recorded = assigned(HERE)  # its position counts if the group has none
    requested = TopicPartition(*HERE, -1_001), TopicPartition(*HERE, 3), TopicPartition(*THERE, -1_001)
    assert [recorded.position_or_recorded(position).offset for position in requested] == [5, 3, -1_001]


NONE = -1_001


@pytest.mark.parametrize(
    ("offset", "under", "scored", "elsewhere", "expected"),
    [
        (7, "new", {"new"}, True, "position"),
        (7, "", set(), True, "position"),
        (0, "new", {"old"}, True, "position"),
        (7, "old", {"old"}, True, "recreated"),
        (7, "old", set(), False, "recreated"),
        (NONE, "", {"old"}, False, "recreated"),
        (NONE, "", {"old", "new"}, False, "expired"),
        (NONE, "", {"new"}, True, "expired"),
        (NONE, "", {""}, False, "expired"),
        (NONE, "", {"", "old"}, True, "expired"),
        (NONE, "", set(), True, "added"),
        (NONE, "", set(), False, "start"),
    ],
)
def test_the_way_on(offset: int, under: str, scored: set[str], elsewhere: bool, expected: StartReason) -> None:
    assert decide_start(offset, under, "new", scored, elsewhere) == expected


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
    group = Group()
    group.assign(0)
    group.waiting += [event(offset, size=size) for offset in range(there)]
    batch = group.intake.take(1.0, lambda _: asked)
    assert batch is not None
    assert (batch.end, len(batch)) == (end, taken)


@given(sizes=st.lists(st.integers(0, 3 * BATCH_BYTES), min_size=1, max_size=200), most=st.integers(1, 200))
def test_a_batch_holds_no_more_bytes_than_expected_and_at_least_one_event(sizes: list[int], most: int) -> None:
    """Where the largest event is known, the limit is passed by the last event of the batch at most."""
    largest, taken = max(sizes), [sizes[0]]
    while (more := chunk(most - len(taken), sum(taken), largest)) > 0:
        came = sizes[len(taken) : len(taken) + more]
        taken += came
        if len(came) < more:
            break
    assert 1 <= len(taken) <= most
    assert sum(taken[:-1]) <= BATCH_BYTES


def test_small_events_are_read_in_one_call() -> None:
    assert chunk(4_095, 200, 200) == 4_095
    assert chunk(4_095, 0, 0) == 4_095
    assert chunk(0, 200, 200) == 0
