"""Offsets that a group member requests from its broker: committed positions, and the bounds of partitions.

A request is retried while brokers are unavailable. The functions keep no state.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from publisher.errors import Evicted, Fatal, MemberLost
from publisher.kafka.error_codes import ABSENT, ANSWERED_LATER, EVICTED
from publisher.kafka.partitions import Partition, leaders
from publisher.runtime.context import Context

ANSWER_SECONDS = 5.0  # the time-out of one request
RETRY_SECONDS = 60.0  # a restarted broker is available again by then; after that, another client must join
PAUSE_SECONDS = 0.1  # between two tries of a request
RANGE_SECONDS = 2.0  # the time-out for the range of a partition, which is only part of a message and may stay unknown
END_SECONDS = 1.0  # after one request that takes longer, the broker is not asked for the other partitions

log = logging.getLogger(__name__)


def committed(consumer: Consumer, partitions: Sequence[TopicPartition], context: Context) -> list[TopicPartition]:
    """Return the committed offsets of these partitions, with metadata, once no open transaction may change them.

    The function calls `context.check` before each retry. The check may raise an error, which ends the wait.

    Raises:
        Evicted: The group rejects this member.
        MemberLost: The request failed for RETRY_SECONDS. A new client must join.
        Fatal: The broker rejects the request, and a retry does not help.
    """
    if not partitions:
        return []
    return _request(lambda: consumer.committed(list(partitions), timeout=ANSWER_SECONDS), context)


def edges(
    consumer: Consumer, admin: AdminClient, partitions: Sequence[Partition], edge: int, context: Context
) -> dict[Partition, int]:
    """Return the first or the end offset of each partition that has a leader, at the isolation level of `consumer`.

    `edge` is OFFSET_BEGINNING for the first offsets, OFFSET_END for the end offsets. `admin` reports the leaders. Raises the
    same errors as `committed`.
    """

    def request() -> list[TopicPartition]:
        led = [TopicPartition(*partition, edge) for partition in with_leader(admin, partitions)]
        return consumer.offsets_for_times(led, timeout=ANSWER_SECONDS) if led else []

    return {(p.topic, p.partition): p.offset for p in _request(request, context)} if partitions else {}


def partition_bounds(
    consumer: Consumer, partitions: Iterable[Partition], paused: Collection[Partition]
) -> dict[Partition, tuple[int, int]]:
    """Return the first and the end offset of each partition; partitions with unknown bounds are omitted.

    `paused` are the partitions that are not fetched. Their bounds are requested from the broker.
    """
    # The bounds come from the answer to the last fetch. For paused partitions they are requested from the broker.
    rows = {}
    broker_answers = True
    for key in partitions:
        partition = TopicPartition(*key)
        bounds: Any = consumer.get_watermark_offsets(partition, cached=True)
        if key in paused and broker_answers:
            try:
                bounds = consumer.get_watermark_offsets(partition, timeout=END_SECONDS)
            except KafkaException:
                broker_answers = False
        if bounds is not None and bounds[1] >= 0:
            rows[key] = bounds
    return rows


def leaderless(client: AdminClient | Consumer, topics: Iterable[str]) -> set[Partition]:
    """Return the partitions of these topics that have no leader. Topics that no broker describes are omitted.

    Within a rebalance callback, `client` must not be the consumer of the callback.
    """
    # `list_topics` would discard the consumer's callback state, and its next callback would crash the process (confluent-kafka
    # 2.16: CallState_get).
    partitions = set()
    for topic in topics:
        try:
            partitions |= {key for key, leader in leaders(client, topic, END_SECONDS).items() if leader < 0}
        except KafkaException as exception:
            if exception.args[0] not in ABSENT:
                break
    return partitions


def with_leader(admin: AdminClient, partitions: Collection[Partition]) -> list[Partition]:
    """Return the partitions that have a leader, or whose leader is unknown."""
    without_leader = leaderless(admin, {topic for topic, _ in partitions})
    return [partition for partition in partitions if partition not in without_leader]


def moved(consumer: Consumer, positions: Mapping[Partition, int]) -> list[Partition]:
    """Return the partitions whose committed offset differs from `positions`; an empty list if the request fails."""
    return [key for key, offset in committed_if_known(consumer, positions).items() if offset >= 0 and offset != positions[key]]


def committed_if_known(consumer: Consumer, partitions: Iterable[Partition]) -> dict[Partition, int]:
    """Return the group's committed offsets, also for partitions of other members; an empty dict if the request fails."""
    requested = [TopicPartition(*partition) for partition in partitions]
    try:
        positions = consumer.committed(requested, timeout=END_SECONDS) if requested else []
    except KafkaException as error:
        log.info("the committed offsets of the group are unknown: %s", error.args[0].str())
        return {}
    return {(p.topic, p.partition): p.offset for p in positions if p.error is None}


def describe_out_of_range(consumer: Consumer, partition: TopicPartition, position: int, command: str) -> str:
    """Describe why a partition cannot be read from `position`, and how `command` moves the group's position."""
    try:
        low, high = consumer.get_watermark_offsets(partition, timeout=RANGE_SECONDS)
        holds = f"holds offsets {low} to {high}"
    except KafkaException as error:
        holds = f"does not hold this offset (its range is unknown: {error.args[0].str()})"
    return (
        f"{partition.topic}[{partition.partition}] {holds}, but the position of the group is {position}: "
        "events were deleted before they were scored, or the topic was recreated (if only transaction markers were deleted, no "
        "event is lost); to continue deliberately, stop the scorers: "
        f"{command} --topic {partition.topic} --partition {partition.partition} --to earliest"
    )


def _request(request: Callable[[], list[TopicPartition]], context: Context) -> list[TopicPartition]:
    """Repeat a request until the broker has answered it for every partition; return the answer.

    Raises the same errors as `committed`.
    """
    deadline = time.monotonic() + RETRY_SECONDS
    logged = False
    while True:
        try:
            answer = request()
        except KafkaException as exception:
            error = exception.args[0]
            subject = "the group's offsets"
        else:
            failed = next((p for p in answer if p.error is not None), None)
            if failed is None:
                return answer
            error = failed.error
            subject = f"the offset of {failed.topic}[{failed.partition}]"
        failure = f"{subject} cannot be read: {error.str()}"
        if error in EVICTED:
            raise Evicted(failure)
        if error not in ANSWERED_LATER:
            raise Fatal(failure, "check the broker's coordinator, and that the partitions have leaders")
        if time.monotonic() > deadline:
            raise MemberLost(failure)
        if not logged:
            logged = True
            log.info("%s", failure)
        context.check()
        time.sleep(PAUSE_SECONDS)
