"""Offsets that a group member requests from its broker: committed positions, and the bounds of partitions."""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from publisher.errors import Evicted, Fatal, MemberLost
from publisher.kafka.error_codes import ABSENT, ANSWERED_LATER, EVICTED
from publisher.kafka.partitions import Partition, leaders

ANSWER_SECONDS = 5.0  # for one answer
PATIENCE_SECONDS = 60.0  # a broker that is restarted is back by then; a consumer that lost its way is better replaced
PAUSE_SECONDS = 0.1
RANGE_SECONDS = 2.0  # the range of a partition is only told; it may stay unknown
END_SECONDS = 1.0  # one partition that is not told in time is enough: the others are not asked for

log = logging.getLogger(__name__)


def committed(consumer: Consumer, partitions: Sequence[TopicPartition], waiting: Callable[[], None]) -> list[TopicPartition]:
    """Return the committed offsets with their metadata, after pending transactions.

    `waiting` is called before each retry and may raise to end the wait.

    Raises:
        Evicted: The group rejects this member.
        MemberLost: Another consumer should ask.
        Fatal: Waiting does not help.
    """
    return _ask(lambda: consumer.committed(list(partitions), timeout=ANSWER_SECONDS), waiting) if partitions else []


def edges(
    consumer: Consumer, asking: AdminClient, partitions: Sequence[Partition], edge: int, waiting: Callable[[], None]
) -> dict[Partition, int]:
    """Return the first or the next offset (OFFSET_BEGINNING, OFFSET_END) of each partition, as this consumer can read them.

    Partitions without a leader, by `asking`, are omitted. Raises like `committed`.
    """

    def found() -> list[TopicPartition]:
        asked = [TopicPartition(*partition, edge) for partition in led(asking, partitions)]
        return consumer.offsets_for_times(asked, timeout=ANSWER_SECONDS) if asked else []

    return {(p.topic, p.partition): p.offset for p in _ask(found, waiting)} if partitions else {}


def partition_bounds(
    consumer: Consumer, partitions: Iterable[Partition], held: Collection[Partition]
) -> dict[Partition, tuple[int, int]]:
    """Return the first and the next offset of each partition, by the last fetch; for `held` partitions by the broker.

    Partitions of unknown bounds are omitted.
    """
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


def leaderless(client: AdminClient | Consumer, topics: Iterable[str]) -> set[Partition]:
    """Return the partitions of these topics without a leader; empty if no broker reports them.

    Within a rebalance callback the client must be another one than that consumer: `list_topics` makes it forget that it is in
    a callback, and its
    next callback ends the process (confluent-kafka 2.16: CallState_get).
    """
    found = set()
    for topic in topics:
        try:
            found |= {key for key, leader in leaders(client, topic, END_SECONDS).items() if leader < 0}
        except KafkaException as exception:
            if exception.args[0] not in ABSENT:
                break
    return found


def led(asking: AdminClient, partitions: Collection[Partition]) -> list[Partition]:
    """Return those of the partitions that are not known to be without a leader."""
    without = leaderless(asking, {topic for topic, _ in partitions})
    return [partition for partition in partitions if partition not in without]


def moved(consumer: Consumer, positions: Mapping[Partition, int]) -> list[Partition]:
    """Return the partitions whose group position differs; empty if the broker does not report them."""
    return [key for key, offset in committed_if_known(consumer, positions).items() if offset >= 0 and offset != positions[key]]


def committed_if_known(consumer: Consumer, partitions: Iterable[Partition]) -> dict[Partition, int]:
    """Return the committed positions of these, also those of other members; empty if the broker does not report them."""
    asked = [TopicPartition(*partition) for partition in partitions]
    try:
        found = consumer.committed(asked, timeout=END_SECONDS) if asked else []
    except KafkaException as error:
        log.info("what the group has committed is not known: %s", error.args[0].str())
        return {}
    return {(p.topic, p.partition): p.offset for p in found if p.error is None}


def out_of_range(consumer: Consumer, partition: TopicPartition, position: int, command: str) -> str:
    """Describe why a partition cannot be read from `position`, and the remedy: `command` moves the group."""
    try:
        low, high = consumer.get_watermark_offsets(partition, timeout=RANGE_SECONDS)
        holds = f"holds offsets {low} to {high}"
    except KafkaException as error:
        holds = f"does not have it (its range is not told: {error.args[0].str()})"
    return (
        f"{partition.topic}[{partition.partition}] {holds}, but the group stands at {position}: "
        "events were deleted before they were scored, or the topic was recreated (if only transaction markers were deleted, no "
        "event is lost); to go on deliberately, stop the scorers: "
        f"{command} --topic {partition.topic} --partition {partition.partition} --to earliest"
    )


def _ask(question: Callable[[], list[TopicPartition]], waiting: Callable[[], None]) -> list[TopicPartition]:
    deadline, told = time.monotonic() + PATIENCE_SECONDS, False
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
        if error in EVICTED:
            raise Evicted(f"{what}: {error.str()}")
        if error not in ANSWERED_LATER:
            raise Fatal(f"{what}: {error.str()}", "check the broker's coordinator, and that the partitions have leaders")
        if time.monotonic() > deadline:
            raise MemberLost(f"{what}: {error.str()}")
        if not told:
            told = True
            log.info("%s: %s", what, error.str())
        waiting()
        time.sleep(PAUSE_SECONDS)
