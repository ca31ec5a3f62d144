"""Produce the history of the demo to Kafka: half a million records with given keys and timestamps in a few seconds."""

from collections.abc import Iterable

from confluent_kafka import KafkaError, Message

from publisher.errors import Fatal
from publisher.kafka import clients
from publisher.kafka.clients import KafkaSettings
from training.demo.generate_history import Record

FLUSH_SECONDS = 60.0
WAIT_SECONDS = 1.0  # how long one wait for room in the producer's queue lasts


def write(settings: KafkaSettings, topic: str, records: Iterable[Record]) -> None:
    """Produce all records, partitioned by key, and wait until the broker has confirmed each of them.

    Raises Fatal if a record is rejected, or not confirmed within `FLUSH_SECONDS` after the last one was produced.
    """
    failures: list[KafkaError] = []

    def note(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = clients.plain_producer(settings, "demo.history", partitioner="murmur2_random", **{"linger.ms": 20})
    for key, value, time_ms in records:
        while True:
            try:
                producer.produce(topic, value, key, timestamp=time_ms, on_delivery=note)
                break
            except BufferError:
                producer.poll(WAIT_SECONDS)
    unsent = producer.flush(FLUSH_SECONDS)
    if failures or unsent:
        cause = failures[0].str() if failures else f"{unsent} records were not confirmed within {FLUSH_SECONDS:.0f} s"
        raise Fatal(f"writing to {topic} failed: {cause}", "see the broker's log")
