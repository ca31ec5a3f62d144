"""What the consumer tells between events: whether the group member can go on."""

import logging

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from publisher.errors import Fatal, MemberLost
from publisher.kafka import rights
from publisher.kafka.error_codes import LOST, REFUSED

log = logging.getLogger(__name__)

RANGE_SECONDS = 2.0  # the range of a partition is only told; it may stay unknown
LACKING = {rights.TOPIC: "the right to read this topic", rights.GROUP: "the right to use this consumer group"}


def pass_over(message: Message, error: KafkaError) -> None:
    """Go on without this message. Raises MemberLost where another consumer has to join, Fatal where a person has to act."""
    if error.fatal() or error in LOST:
        raise MemberLost(f"the consumer group refuses this member: {error.str()}")
    if lacking := LACKING.get(REFUSED.why(error) or ""):
        raise Fatal(f"cannot read {message.topic()}: {error.str()}", f"check {lacking}", 3)
    log.warning("consumer: %s", error.str())


def out_of_range(consumer: Consumer, partition: TopicPartition, position: int) -> str:
    """Why a partition cannot be read from `position`, and the way out."""
    try:
        low, high = consumer.get_watermark_offsets(partition, timeout=RANGE_SECONDS)
        holds = f"holds offsets {low} to {high}"
    except KafkaException as error:
        holds = f"does not have it (its range is not told: {error.args[0].str()})"
    return (
        f"{partition.topic}[{partition.partition}] {holds}, but the group stands at {position}: "
        "events were deleted before they were scored, or the topic was made anew; to go on deliberately, stop the scorers: "
        f"scorer offsets CONFIG --topic {partition.topic} --partition {partition.partition} --to earliest"
    )
