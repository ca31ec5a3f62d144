"""What the consumer tells between events: whether the group member can go on."""

import logging

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from publisher.errors import Fatal
from scorer.group_offsets import ANSWER_SECONDS

log = logging.getLogger(__name__)

FATAL_CODES = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "the right to read this topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "the right to use this consumer group",
}


def usable(consumer: Consumer, message: Message) -> bool:
    """Whether this is an event. Raises Fatal for an error after which the group member is no good any more."""
    error = message.error()
    if error is None:
        return True
    if error.code() == KafkaError._AUTO_OFFSET_RESET:
        raise _out_of_range(consumer, message)
    if error.fatal() or error.code() == KafkaError._FATAL:
        raise Fatal(f"the consumer group refuses this member: {error.str()}", "start the scorer again")
    if error.code() in FATAL_CODES:
        raise Fatal(f"cannot read {message.topic()}: {error.str()}", f"check {FATAL_CODES[error.code()]}", 3)
    log.warning("consumer: %s", error.str())
    return False


def _out_of_range(consumer: Consumer, message: Message) -> Fatal:
    partition = TopicPartition(message.topic() or "", message.partition() or 0)
    low, high = consumer.get_watermark_offsets(partition, timeout=ANSWER_SECONDS)
    committed = consumer.committed([partition], timeout=ANSWER_SECONDS)[0].offset
    return Fatal(
        f"{partition.topic}[{partition.partition}] holds offsets {low} to {high}, but the group stands at {committed}: "
        "events were deleted before they were scored, or the topic was made anew",
        "to go on deliberately: scorer offsets CONFIG "
        f"--topic {partition.topic} --partition {partition.partition} --to earliest",
        3,
    )
