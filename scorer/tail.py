"""`scorer tail`: read score records or dead letters, committed ones only, one JSON object a line."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import orjson
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Message, TopicPartition

from publisher import kafka
from publisher.errors import Fatal
from scorer import topics
from scorer.settings import Settings

POLL_SECONDS = 0.2


def tail(
    settings: Settings,
    *,
    dead: bool = False,
    from_beginning: bool = False,
    follow: bool = True,
    stopping: Callable[[], bool] = lambda: False,
) -> Iterator[bytes]:
    """Records as they become visible to a read_committed consumer. Without `follow`, up to the end as it is now."""
    topic = settings.dead_letter.topic if dead else settings.output.topic
    name = f"{settings.name}.tail"
    admin = kafka.admin(settings.kafka, name)
    found = topics.describe(admin, [topic])
    if topic not in found:
        raise Fatal(f"topic {topic} does not exist", "scorer check CONFIG --create makes what is missing", 2)
    consumer = kafka.reader(settings.kafka, name, **{"enable.partition.eof": True})
    start = OFFSET_BEGINNING if from_beginning or not follow else OFFSET_END
    consumer.assign([TopicPartition(topic, p, start) for p in range(found[topic].partitions)])
    at_end: set[int | None] = set()
    show = dead_letter if dead else score
    try:
        while not stopping() and (follow or len(at_end) < found[topic].partitions):
            for message in consumer.consume(1_000, POLL_SECONDS):
                if message.error() is not None:
                    at_end.add(message.partition())
                else:
                    yield show(message)
    finally:
        consumer.close()


def score(message: Message) -> bytes:
    """The record as it stands in the topic."""
    return message.value() or b"null"


def dead_letter(message: Message) -> bytes:
    """Where the event came from, what is wrong with it, and what it was, as JSON."""
    headers: dict[str, Any] = {}
    for name, value in list(message.headers() or []):
        headers[str(name)] = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    facts = {name.removeprefix("dead."): value for name, value in headers.items() if name.startswith("dead.")}
    return orjson.dumps({**facts, "key": _text(message.key()), "value": _text(message.value())})


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "backslashreplace")


def read_to_end(settings: Settings, topic: str, seconds: float = 10.0) -> Iterator[Message]:
    """Every record of a small topic, from its start to its end as it is now. Raises Fatal where it cannot be read."""
    name = f"{settings.name}.read"
    found = topics.describe(kafka.admin(settings.kafka, name), [topic])
    if topic not in found:
        raise Fatal(f"topic {topic} does not exist", "scorer check CONFIG --create makes what is missing", 2)
    consumer = kafka.reader(settings.kafka, name, **{"enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(found[topic].partitions)])
    left, deadline = found[topic].partitions, time.monotonic() + seconds
    try:
        while left:
            for message in consumer.consume(1_000, POLL_SECONDS):
                if message.error() is None:
                    yield message
                    deadline = time.monotonic() + seconds
                else:
                    left -= 1
            if time.monotonic() > deadline:
                raise Fatal(f"topic {topic} cannot be read to its end", "check the broker")
    finally:
        consumer.close()
