"""`scorer emit`: write events to the input topic, one JSON object a line, at a steady rate where one is asked for."""

import time
from collections.abc import Iterable, Sequence

import orjson
from confluent_kafka import KafkaError, Message

from publisher import kafka
from publisher.errors import Fatal
from scorer.settings import Settings

FLUSH_SECONDS = 30.0
TICK = 0.002  # seconds between looks at the clock while waiting for an event's turn


class Key:
    """The key of an event: a template over its fields, `{carrier}-{flight}`, or none."""

    def __init__(self, template: str | None) -> None:
        self._template = template

    def of(self, line: bytes, number: int) -> bytes | None:
        """Raises Fatal where the event has not the fields that the template names."""
        if self._template is None:
            return None
        try:
            return self._template.format_map(orjson.loads(line)).encode()
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise Fatal(f"line {number}: no key {self._template!r}: {error!r}", "check --key and the event", 2) from None


def emit(
    settings: Settings,
    lines: Iterable[bytes],
    *,
    topic: str | None = None,
    key: str | None = None,
    headers: Sequence[tuple[str, str]] = (),
    rate: float | None = None,
) -> int:
    """Write the lines; the number written, each confirmed by the broker. `rate` is events a second.

    Partitions are chosen by key as the Java client does (murmur2). Raises Fatal where the broker did not take an event.
    """
    failures: list[KafkaError] = []

    def noted(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = kafka.plain_producer(
        settings.kafka,
        f"{settings.name}.emit",
        partitioner="murmur2_random",
        **{"linger.ms": 2, "message.max.bytes": 100_000_000},
    )
    target, keys, count = topic or settings.input.topics[0], Key(key), 0
    began = time.monotonic()
    fixed: list[tuple[str, str | bytes | None]] = [*headers]
    for line in lines:
        event = line.rstrip(b"\r\n")
        if not event:
            continue
        _wait_for_turn(producer.poll, began + count / rate if rate else None)
        count += 1
        while True:
            try:
                producer.produce(target, event, keys.of(event, count), on_delivery=noted, headers=fixed or None)
                break
            except BufferError:
                producer.poll(1)
        if failures:
            break
    left = producer.flush(FLUSH_SECONDS)
    if failures or left:
        why = failures[0].str() if failures else f"{left} events were not confirmed within {FLUSH_SECONDS:.0f} s"
        raise Fatal(f"writing to {target} failed: {why}", "check that the topic exists and the broker answers")
    return count


def _wait_for_turn(poll: "object", due: float | None) -> None:
    """Serve delivery reports until it is `due` (monotonic seconds)."""
    assert callable(poll)
    poll(0)
    while due is not None and (left := due - time.monotonic()) > 0:
        poll(min(left, TICK))
