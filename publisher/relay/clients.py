"""The Kafka clients of a lane: tuned for a source that is far away and a destination that is near.

Sources of the numbers: a cut link is noticed when a connection attempt or an answer takes too long, so those limits (not the
back-off alone) decide how soon copying goes on afterwards; fetches and queues bound a lane's memory in bytes.
"""

from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer

from publisher.errors import Fatal, NotAllowed
from publisher.kafka import clients as kafka
from publisher.kafka import connection
from publisher.kafka.error_codes import UNKNOWN_CLIENT
from publisher.relay.settings import RelaySettings

QUICK: dict[str, Any] = {
    "socket.connection.setup.timeout.ms": 2_000,  # an attempt into a cut link: the kernel repeats its SYN after 1 s, then 2, 4
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "log_level": 3,  # errors: each attempt into a cut link would be a warning, and readiness tells of that
}
ANSWER_MS = 4_000  # a connection that is silent for longer is made anew: TCP itself repeats ever more slowly
SEE_CHECK = "see what is needed: publisher check CONFIG"


def far_reader(settings: RelaySettings, lane: int) -> Consumer:
    """A consumer for assigned partitions of the source, which is told where each of them ends."""
    source = settings.source
    share = settings.bytes_per_second // settings.lanes  # what a lane may read in a second need not be fetched ahead twice
    queue = min(source.queue_bytes, max(65_536, share)) if share else source.queue_bytes
    properties: dict[str, Any] = {
        "enable.partition.eof": True,
        "enable.auto.offset.store": False,
        "fetch.message.max.bytes": min(source.fetch_bytes, queue),
        "fetch.queue.backoff.ms": 5,
        "queued.min.messages": 50_000,
        "queued.max.messages.kbytes": queue // 1_024,
        "socket.timeout.ms": ANSWER_MS,
        **QUICK,
        **source.extra,
    }
    if source.socket_buffer_bytes:
        properties["socket.receive.buffer.bytes"] = source.socket_buffer_bytes
    return kafka.reader(source.kafka, settings.lane_id(lane), **properties)


def near_writer(settings: RelaySettings, transactional_id: str, batch_bytes: int = kafka.LARGEST_BATCH) -> Producer:
    """A transactional producer for the destination. `batch_bytes`: what every topic takes at once.

    Nothing hears of single records: a commit fails with what befell the first one that was not written. (A delivery callback
    may be called while the library holds an exception for a fatal error, and then fails with SystemError.)
    """
    destination = settings.destination
    tuning = {"linger.ms": 5, "compression.type": destination.compression, **QUICK, **destination.extra}
    return kafka.transactional_producer(destination.kafka, transactional_id, transactional_id, batch_bytes, **tuning)


def quick(cluster: kafka.KafkaSettings) -> kafka.KafkaSettings:
    """The settings of clients that are back soon after their cluster is."""
    return cluster.model_copy(update={"extra": {**QUICK, "socket.timeout.ms": ANSWER_MS, **cluster.extra}})


def refusal(cluster: kafka.KafkaSettings, error: KafkaError) -> Fatal:
    """What an error of REFUSED or UNKNOWN_CLIENT means, said by the source: this client is not known, or may not do it."""
    if error in UNKNOWN_CLIENT:
        return connection.refused(cluster, error)
    return NotAllowed(f"the source refuses: {error.str()}", SEE_CHECK)
