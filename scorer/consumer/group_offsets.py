"""Questions about offsets that a group member asks its broker: what is committed, and where partitions begin and end."""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from publisher.errors import Evicted, Fatal, MemberLost
from publisher.kafka.error_codes import ABSENT, EVICTED, TOLD_LATER
from publisher.kafka.partitions import Partition, leaders

ANSWER_SECONDS = 5.0  # for one answer
PATIENCE_SECONDS = 60.0  # a broker that is restarted is back by then; a consumer that lost its way is better replaced
PAUSE_SECONDS = 0.1
RANGE_SECONDS = 2.0  # the range of a partition is only told; it may stay unknown
END_SECONDS = 1.0  # one partition that is not told in time is enough: the others are not asked for

log = logging.getLogger(__name__)


def committed(consumer: Consumer, partitions: Sequence[TopicPartition], waiting: Callable[[], None]) -> list[TopicPartition]:
    """The committed offsets with their metadata, pending transactions waited for. `waiting` is called before each further try;
    what it raises ends the waiting.

    Raises Evicted where the group refuses to tell this member, MemberLost where it is time for another consumer to ask, Fatal
    where no waiting helps.
    """
    return _ask(lambda: consumer.committed(list(partitions), timeout=ANSWER_SECONDS), waiting) if partitions else []


def edges(
    consumer: Consumer, asking: AdminClient, partitions: Sequence[Partition], edge: int, waiting: Callable[[], None]
) -> dict[Partition, int]:
    """The first or the next offset (OFFSET_BEGINNING, OFFSET_END) of each, as this consumer can read them; partitions without
    a leader, as `asking` tells, are left out. As `committed`."""

    def found() -> list[TopicPartition]:
        asked = [TopicPartition(*partition, edge) for partition in led(asking, partitions)]
        return consumer.offsets_for_times(asked, timeout=ANSWER_SECONDS) if asked else []

    return {(p.topic, p.partition): p.offset for p in _ask(found, waiting)} if partitions else {}


def partition_bounds(
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


def leaderless(client: AdminClient | Consumer, topics: Iterable[str]) -> set[Partition]:
    """The partitions of these topics that no broker leads; nothing where no broker tells.

    Within a rebalance callback the client must be another one than that consumer: `list_topics` makes it forget that it is
    called, and its next callback ends the process (confluent-kafka 2.16: CallState_get).
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
    """Those of the partitions that are not known to be without a leader."""
    without = leaderless(asking, {topic for topic, _ in partitions})
    return [partition for partition in partitions if partition not in without]


def moved(consumer: Consumer, positions: Mapping[Partition, int]) -> list[Partition]:
    """Those partitions where the group stands elsewhere by now; nothing where the broker does not tell."""
    return [key for key, offset in committed_if_known(consumer, positions).items() if offset >= 0 and offset != positions[key]]


def committed_if_known(consumer: Consumer, partitions: Iterable[Partition]) -> dict[Partition, int]:
    """What the group has committed of these, also of those that others hold; nothing where the broker does not tell."""
    asked = [TopicPartition(*partition) for partition in partitions]
    try:
        found = consumer.committed(asked, timeout=END_SECONDS) if asked else []
    except KafkaException as error:
        log.info("what the group has committed is not known: %s", error.args[0].str())
        return {}
    return {(p.topic, p.partition): p.offset for p in found if p.error is None}


def out_of_range(consumer: Consumer, partition: TopicPartition, position: int, command: str) -> str:
    """Why a partition cannot be read from `position`, and the way out: `command` moves the group."""
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
        if error not in TOLD_LATER:
            raise Fatal(f"{what}: {error.str()}", "check the broker's coordinator, and that the partitions have leaders")
        if time.monotonic() > deadline:
            raise MemberLost(f"{what}: {error.str()}")
        if not told:
            told = True
            log.info("%s: %s", what, error.str())
        waiting()
        time.sleep(PAUSE_SECONDS)
