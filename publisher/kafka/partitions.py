"""Partitions: their leaders, and their first and last offsets."""

from collections.abc import Iterable, Mapping, Sequence

from confluent_kafka import Consumer, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from publisher.kafka.error_codes import no_leader

Partition = tuple[str, int]
"""(topic, partition)"""
Offsets = dict[Partition, int]
Spans = Mapping[Partition, tuple[int, int]]
"""A range of offsets for each partition: the first offset, and the offset after the last one."""

EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]


def in_ranges(partitions: Iterable[Partition]) -> str:
    """Format partitions for messages: `flights[0-999], labels[3,5]`."""
    by_topic: dict[str, set[int]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, set()).add(number)
    return ", ".join(f"{topic}[{_ranges(sorted(numbers))}]" for topic, numbers in sorted(by_topic.items()))


def _ranges(numbers: Sequence[int]) -> str:
    """Format ascending numbers as text, with consecutive numbers as a range: `0-2,5`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)


def offsets(
    admin: AdminClient,
    partitions: Iterable[Partition],
    spec: OffsetSpec,
    seconds: float,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> Offsets:
    """Return the offset that `spec` selects in each partition: EARLIEST, LATEST, or the first record at or after a timestamp.

    The offset is -1 if no record is at or after the timestamp. With READ_COMMITTED, LATEST is the last stable offset.

    Raises:
        KafkaException: if the broker does not answer, or omits an offset, as after a restart.
    """
    specs = {TopicPartition(*partition): spec for partition in partitions}
    answers = admin.list_offsets(specs, isolation_level=isolation, request_timeout=seconds) if specs else {}
    result: Offsets = {}
    for p, answer in answers.items():
        failure = answer.exception()
        if isinstance(failure, KafkaException):  # the original would keep this frame, the client and its threads alive
            raise KafkaException(*failure.args)
        result[p.topic, p.partition] = answer.result().offset
    for (topic, number), offset in result.items():
        if offset < 0 and spec in (EARLIEST, LATEST):
            raise no_leader(f"the broker did not return the offset of {topic}[{number}]")
    return result


def leaders(client: AdminClient | Consumer, topic: str, seconds: float) -> dict[Partition, int]:
    """Return the broker id of the leader of each partition of a topic; negative if a partition has no leader.

    Raises:
        KafkaException: if no broker answers, or the topic does not exist.
    """
    metadata = client.list_topics(topic, timeout=seconds).topics[topic]
    if metadata.error is not None:
        raise KafkaException(metadata.error)
    return {(topic, number): metadata.partitions[number].leader for number in sorted(metadata.partitions)}
