from collections import deque

from confluent_kafka import KafkaError, TopicPartition

from publisher.kafka.sandbox_program import Answer, Ended, Read, Records, Row, Unreadable
from publisher.kafka.sandboxed_reads import Sandboxed
from scorer.consumer.fence_dead_owners import DeadOwners
from scorer.consumer.offset_metadata import OffsetMetadata
from scorer.consumer.sandboxed_partitions import SandboxedInputPartitions
from scorer.consumer.start_offsets import StartPosition
from tests.unit.scorer.consumer.group import TOPIC, Group, event, failing

PARTITION = ("flights", 0)


class Answering:
    """A sandbox process that returns these answers."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = deque(answers)

    def ask(self, question: Read) -> None: ...

    def answer(self, _: float) -> Answer | None:
        return self._answers.popleft() if self._answers else None

    def close(self) -> None: ...


def suspects(*answers: Answer) -> SandboxedInputPartitions:
    child = Answering(*answers)
    return SandboxedInputPartitions(Sandboxed(lambda _: child), "scoring.a")


def start_position(partition: int, owner: str, member: str = "") -> StartPosition:
    mark = OffsetMetadata(owner, member=member)
    return StartPosition("position", TopicPartition("flights", partition, 10 + partition), mark)


def rows(*offsets: int) -> Records:
    return Records([Row(offset, b"k", b"v", (1, 1_000), 3, None, None) for offset in offsets])


def test_partitions_of_dead_owners_are_suspects() -> None:
    start_positions = [start_position(0, "scoring.dead"), start_position(1, "scoring.b"), start_position(2, "")]
    assert suspects().suspects_among(start_positions, DeadOwners(frozenset({"scoring.dead"})), "m") == {("flights", 0): 10}


def test_a_partition_of_a_scorer_that_died_and_has_joined_again_is_a_suspect() -> None:
    start_positions = [start_position(0, "scoring.b", "before"), start_position(1, "scoring.b", "now")]
    assert suspects().suspects_among(start_positions, DeadOwners(members=frozenset({"before"})), "m") == {("flights", 0): 10}


def test_partitions_of_an_earlier_process_of_this_name_are_suspects_until_they_are_claimed() -> None:
    sandboxed = suspects()
    before = [start_position(0, "scoring.a", "before")]
    assert sandboxed.suspects_among(before, DeadOwners(), "now") == {("flights", 0): 10}
    assert sandboxed.suspects_among(before, DeadOwners(), "now") == {("flights", 0): 10}
    assert sandboxed.suspects_among([start_position(0, "scoring.a", "now")], DeadOwners(), "now") == {}
    assert sandboxed.suspects_among([start_position(0, "scoring.a", "now")], DeadOwners(), "joined again") == {}


def test_records_come_as_batches_within_the_limit() -> None:
    sandboxed = suspects(rows(10, 11, 12))
    sandboxed.add(PARTITION, 10)
    batches = [sandboxed.take(lambda _: 2, lambda _: True, 0.0) for _ in range(2)]
    assert [batch.offsets if batch else None for batch in batches] == [[10, 11], [12]]


def test_a_batch_that_cannot_be_read_is_one_entry_at_its_last_offset() -> None:
    sandboxed = suspects(Unreadable(40, "gzip", 300, 31, "too large"))
    sandboxed.add(PARTITION, 10)
    batch = sandboxed.take(lambda _: 2, lambda _: True, 0.0)
    assert batch is not None
    assert batch.reached == {PARTITION: 41}
    assert batch.unreadable[0].first == 10
    assert "offsets 10 to 40 (gzip, 300 bytes in the log, 31 records)" in batch.unreadable[0].reason


def test_waiting_records_are_dropped_with_their_partition() -> None:
    sandboxed = suspects(rows(10, 11))
    sandboxed.add(PARTITION, 10)
    assert sandboxed.take(lambda _: 1, lambda _: True, 0.0) is not None
    sandboxed.forget([PARTITION])
    assert not sandboxed
    assert sandboxed.take(lambda _: 1, lambda _: True, 0.0) is None


def test_a_partition_of_a_dead_process_is_not_fetched_before_the_sandbox_has_passed_it() -> None:
    group = Group(suspects=suspects(rows(5, 6), Ended(7)))
    group.committed[TOPIC, 0] = 5, OffsetMetadata(owner="scoring.a")
    group.assign(0)
    assert (group.reads, group.paused()) == ({(TOPIC, 0): 5}, {0})
    assert [group.offsets() for _ in range(4)] == [[5, 6], [], [], []]
    assert (group.reads, group.paused()) == ({(TOPIC, 0): 7}, set())


def test_a_suspect_partition_of_another_process_stays_a_suspect() -> None:
    """Otherwise each rebalance assigns the batch to another process, which the batch kills."""
    group = Group(suspects=suspects(rows(5, 6), Ended(7)))
    group.committed[TOPIC, 0] = 5, OffsetMetadata(owner="scoring.b", suspect=True)
    group.assign(0)
    assert (group.reads, group.paused()) == ({(TOPIC, 0): 5}, {0})
    partitions = group.intake.partitions
    (claim,) = partitions.ownership_positions([(TOPIC, 0)], "scoring.a")
    assert OffsetMetadata.decode(claim.metadata).suspect
    batch = next(batch for _ in range(4) if (batch := group.intake.take(0.0, lambda _: 100)) is not None)
    (position,) = partitions.offsets(batch, OffsetMetadata("scoring.a"))
    assert OffsetMetadata.decode(position.metadata).suspect
    assert [group.offsets() for _ in range(3)] == [[], [], []]
    (position,) = partitions.offsets(batch, OffsetMetadata("scoring.a"))
    assert not OffsetMetadata.decode(position.metadata).suspect


def test_a_batch_that_the_client_cannot_decompress_is_skipped_and_the_partition_resumed() -> None:
    group = Group(suspects=suspects(Unreadable(9, "zstd", 300, 3, "too large"), Ended(10)))
    group.committed[TOPIC, 0] = 5, OffsetMetadata(owner="scoring.b")
    group.assign(0)
    group.waiting += [event(5), event(6), failing(7, KafkaError._BAD_COMPRESSION)]
    assert group.offsets() == [5, 6]
    assert group.paused() == {0}
    batches = [group.intake.take(0.0, lambda _: 100) for _ in range(4)]
    assert [(batch.offsets, list(batch.unreadable)) for batch in batches if batch] == [([9], [0])]
    assert (group.reads, group.paused()) == ({(TOPIC, 0): 10}, set())


def test_after_a_rewind_the_sandbox_reads_from_the_committed_offset() -> None:
    group = Group(suspects=suspects(rows(5, 6), rows(5, 6)))
    group.committed[TOPIC, 0] = 5, OffsetMetadata(owner="scoring.a")
    group.assign(0)
    assert group.offsets() == [5, 6]
    group.intake.rewind()
    assert [group.offsets() for _ in range(2)] == [[], [5, 6]]
