"""Questions about offsets that a group member asks its broker: what is committed, and where partitions begin and end."""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from publisher.errors import Evicted, Fatal
from publisher.transaction_states import MEMBERSHIP_CODES

ANSWER_SECONDS = 10.0  # a coordinator that does not tell the committed offsets for so long is given up
PAUSE_SECONDS = 0.1
MOVED_CODES = frozenset(
    {
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
    }
)
"""What a broker answers whose metadata, or ours, is about to change: the same question has an answer a moment later."""
END_SECONDS = 1.0  # one partition that is not told in time is enough: the others are not asked for
Partition = tuple[str, int]


def committed(consumer: Consumer, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
    """The committed offsets with their metadata, pending transactions waited for.

    Raises Evicted where the group refuses to tell this member, Fatal where they cannot be had.
    """
    return _ask(lambda: consumer.committed(list(partitions), timeout=ANSWER_SECONDS)) if partitions else []


def edges(consumer: Consumer, partitions: Sequence[Partition], edge: int) -> dict[Partition, int]:
    """The first or the next offset (OFFSET_BEGINNING, OFFSET_END) of each, as this consumer can read them. Raises Fatal."""
    if not partitions:
        return {}
    asked = [TopicPartition(*partition, edge) for partition in partitions]
    return {(p.topic, p.partition): p.offset for p in _ask(lambda: consumer.offsets_for_times(asked, timeout=ANSWER_SECONDS))}


def known_ends(
    consumer: Consumer, partitions: Iterable[Partition], held: Collection[Partition]
) -> dict[Partition, tuple[int, int]]:
    """The first and the next offset of each, as the last fetches told; of those that are `held`, and so not fetched, as the
    broker tells now. Missing where neither does."""
    rows, answers = {}, True
    for key in partitions:
        partition = TopicPartition(*key)
        bounds: Any = consumer.get_watermark_offsets(partition, cached=True)
        if key in held and answers:
            try:
                bounds = consumer.get_watermark_offsets(partition, timeout=END_SECONDS)
            except KafkaException:
                answers = False
        if bounds is not None and bounds[1] >= 0:
            rows[key] = bounds
    return rows


def _ask(question: Callable[[], list[TopicPartition]]) -> list[TopicPartition]:
    deadline = time.monotonic() + ANSWER_SECONDS
    while True:
        try:
            answer = question()
        except KafkaException as exception:
            error, what = exception.args[0], "the group's offsets cannot be read"
        else:
            wrong = next((p for p in answer if p.error is not None), None)
            if wrong is None:
                return answer
            error, what = wrong.error, f"the offset of {wrong.topic}[{wrong.partition}] is not told"
        if error.code() in MEMBERSHIP_CODES:
            raise Evicted(f"{what}: {error.str()}")
        if error.code() not in MOVED_CODES or time.monotonic() > deadline:
            raise Fatal(f"{what}: {error.str()}", "check the broker's coordinator, and that the partitions have leaders")
        time.sleep(PAUSE_SECONDS)
