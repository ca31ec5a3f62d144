"""The Kafka clients of a copying thread, tuned for a distant source and a near destination.

The size limits of fetches and queues bound the memory of a thread.
"""

# A client detects a broken link when a connection attempt or an answer takes too long. These time limits, not the reconnect
# backoff alone, decide how soon copying continues after an outage.

from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer

from publisher.errors import Fatal, NotAllowed
from publisher.kafka import clients as kafka
from publisher.kafka import connection
from publisher.kafka.error_codes import UNKNOWN_CLIENT
from publisher.relay.settings import RelaySettings

SHORT_TIMEOUTS: dict[str, Any] = {
    "socket.connection.setup.timeout.ms": 2_000,  # while the link is down the kernel repeats its SYN after 1 s, then 2, 4
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "log_level": 3,  # errors only: each failed connection attempt is a warning, and readiness reports the outage anyway
}
ANSWER_MS = 4_000  # a connection without an answer for longer is replaced: TCP itself would retry at growing intervals
CHECK_HINT = "publisher check CONFIG lists the missing rights"


def create_source_consumer(settings: RelaySettings, lane: int) -> Consumer:
    """Return the consumer of the copying thread `lane` for source partitions. It reports the end of each partition."""
    source = settings.source
    share = settings.bytes_per_second // settings.lanes  # no more is fetched ahead than the lane may read in a second
    queue = min(source.queue_bytes, max(65_536, share)) if share else source.queue_bytes
    properties: dict[str, Any] = {
        "enable.partition.eof": True,
        "enable.auto.offset.store": False,
        "fetch.message.max.bytes": min(source.fetch_bytes, queue),
        "fetch.queue.backoff.ms": 5,
        "queued.min.messages": 50_000,
        "queued.max.messages.kbytes": queue // 1_024,
        "socket.timeout.ms": ANSWER_MS,
        **SHORT_TIMEOUTS,
        **source.extra,
    }
    if source.socket_buffer_bytes:
        properties["socket.receive.buffer.bytes"] = source.socket_buffer_bytes
    return kafka.reader(source.kafka, settings.lane_id(lane), **properties)


def create_destination_producer(
    settings: RelaySettings, transactional_id: str, batch_bytes: int = kafka.LARGEST_BATCH
) -> Producer:
    """Return a transactional producer for the destination. `batch_bytes` is the largest batch that every topic accepts."""
    # It has no delivery callback: a failed commit already reports the error of the first record that was not written. Also,
    # confluent-kafka may run the callback after it has set the exception for a fatal error, and the callback would then fail
    # with SystemError.
    destination = settings.destination
    tuning = {"linger.ms": 5, "compression.type": destination.compression, **SHORT_TIMEOUTS, **destination.extra}
    return kafka.transactional_producer(destination.kafka, transactional_id, transactional_id, batch_bytes, **tuning)


def with_short_timeouts(cluster: kafka.KafkaSettings) -> kafka.KafkaSettings:
    """Return a copy of the client settings with short time-outs, so that a client reconnects soon after an outage."""
    return cluster.model_copy(update={"extra": {**SHORT_TIMEOUTS, "socket.timeout.ms": ANSWER_MS, **cluster.extra}})


def source_rejection(cluster: kafka.KafkaSettings, error: KafkaError) -> Fatal:
    """Return the error to raise if the source rejects this client (UNKNOWN_CLIENT) or one of its requests (REFUSED)."""
    if error in UNKNOWN_CLIENT:
        return connection.refused(cluster, error)
    return NotAllowed(f"the source rejects the request: {error.str()}", CHECK_HINT)
