"""Questions about offsets that a group member asks its broker: what is committed, and where partitions begin and end."""

from collections.abc import Callable, Sequence

from confluent_kafka import Consumer, KafkaException, TopicPartition

from publisher.errors import Fatal

ANSWER_SECONDS = 10.0  # a coordinator that does not tell the committed offsets for so long is given up
Partition = tuple[str, int]


def committed(consumer: Consumer, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
    """The committed offsets with their metadata, pending transactions waited for. Raises Fatal where they cannot be had."""
    return _ask(lambda: consumer.committed(list(partitions), timeout=ANSWER_SECONDS)) if partitions else []


def edges(consumer: Consumer, partitions: Sequence[Partition], edge: int) -> dict[Partition, int]:
    """The first or the next offset (OFFSET_BEGINNING, OFFSET_END) of each, as this consumer can read them. Raises Fatal."""
    if not partitions:
        return {}
    asked = [TopicPartition(*partition, edge) for partition in partitions]
    return {(p.topic, p.partition): p.offset for p in _ask(lambda: consumer.offsets_for_times(asked, timeout=ANSWER_SECONDS))}


def _ask(question: Callable[[], list[TopicPartition]]) -> list[TopicPartition]:
    try:
        answer = question()
    except KafkaException as error:
        raise Fatal(f"the group's offsets cannot be read: {error.args[0]}", "check the broker's coordinator") from error
    for p in answer:
        if p.error is not None:
            raise Fatal(f"the offset of {p.topic}[{p.partition}] is not told: {p.error}", "check the broker")
    return answer
