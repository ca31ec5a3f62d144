"""What is known of the partitions that are ours."""

from confluent_kafka import TopicPartition

from publisher.kafka.partitions import Partition
from scorer.events.batch import Batch
from scorer.intake.beginnings import AnswersFrom, Beginning
from scorer.intake.marks import Mark
from scorer.intake.partitions import Partitions

HERE, THERE = ("flights", 0), ("flights", 1)
SCORED = Mark("n.a", 4, "1.0.0", "sha256:a")


def assigned(*places: Partition, after: AnswersFrom | None = None) -> Partitions:
    """These, at offset 5."""
    made = Partitions()
    made.assign(Beginning("position", TopicPartition(*p, 5), Mark(topic_id="one"), after) for p in places)
    return made


def taken(partitions: Partitions, *places: Partition) -> Batch:
    """One event of each."""
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
    assert {Mark.decode(p.metadata) for p in whole} == {Mark("n.a", 4, "1.0.0", "sha256:a", topic_id="one")}
    assert [(p.partition, p.offset) for p in partitions.offsets(batch, SCORED, {THERE: 6})] == [(1, 6)]


def test_a_commit_counts_only_where_the_partition_has_been_ours_since() -> None:
    partitions = assigned(HERE, THERE, after=AnswersFrom([1], [2]))
    batch = taken(partitions, HERE, THERE)
    partitions.leave([THERE])
    partitions.assign([Beginning("position", TopicPartition(*THERE, 5), Mark(topic_id="one"))])
    partitions.commit(batch, SCORED)
    assert partitions.committed() == {HERE: 6, THERE: 5}
    assert partitions.mark(HERE).served == SCORED.served
    assert partitions.mark(THERE) == Mark(topic_id="one")
    assert partitions.answers_from(HERE) is None
    assert not partitions.still(batch.epochs)


def test_answers_of_a_topic_made_again_are_named_until_one_is_committed() -> None:
    partitions = assigned(HERE, after=AnswersFrom([1], [2]))
    partitions.rewind(Beginning("position", TopicPartition(*HERE, 5), Mark(topic_id="one")))
    assert partitions.answers_from(HERE) == AnswersFrom([1], [2])


def test_where_the_group_tells_no_position_ours_is_remembered() -> None:
    partitions = assigned(HERE)
    assert partitions.remembered(TopicPartition(*HERE, -1_001)).offset == 5
    assert partitions.remembered(TopicPartition(*HERE, 3)).offset == 3
    assert partitions.remembered(TopicPartition(*THERE, -1_001)).offset == -1_001


def test_of_a_partition_that_is_not_ours_nothing_is_known() -> None:
    partitions = assigned(HERE)
    partitions.leave([HERE, THERE])
    assert (len(partitions), HERE in partitions, partitions.next(HERE)) == (0, False, None)
    assert partitions.mark(HERE) == Mark()
    assert partitions.answers_from(HERE) is None
    assert partitions.arrivals() == set()
