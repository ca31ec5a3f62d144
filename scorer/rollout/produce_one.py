"""Write one record to a topic and wait for its delivery. Thin I/O."""

from confluent_kafka import KafkaError

from publisher.errors import Fatal
from publisher.kafka import clients as kafka
from scorer.settings import Settings

ANSWER_SECONDS = 10.0


def produce_one(settings: Settings, topic: str, key: bytes, value: bytes) -> None:
    """Write a record, and return when the broker has acknowledged it.

    Raises:
        Fatal: If the broker does not accept the record.
    """
    failed: list[KafkaError] = []
    timing = {"message.timeout.ms": int(ANSWER_SECONDS * 1_000), "linger.ms": 0}
    producer = kafka.plain_producer(settings.kafka, f"{settings.name}.rollout", **timing)
    kafka.warm_up(producer, topic)
    producer.produce(topic, value, key, on_delivery=lambda error, _: failed.append(error) if error else None)
    if producer.flush(ANSWER_SECONDS + 1) or failed:
        reason = failed[0].str() if failed else "no answer"
        raise Fatal(
            f"could not write to {topic}: {reason}", "check that the broker responds and that the user may write to the topic"
        )
