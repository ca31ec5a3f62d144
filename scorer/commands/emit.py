"""`scorer emit`: writes events to the input topic, one JSON object a line, at a steady rate where one is asked for."""

import contextlib
import sys
import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import orjson
import typer
from confluent_kafka import KafkaError, KafkaException, Message

from publisher.errors import USAGE, Fatal
from publisher.kafka import clients as kafka
from publisher.kafka import rights, topics
from publisher.kafka.error_codes import REFUSED
from publisher.kafka.rights import WRITE, Right
from publisher.process.command_line import Config, Json, Set, print_data
from scorer.settings import Settings, load

CONNECT_SECONDS = 10.0
FLUSH_SECONDS = 30.0
LARGEST = 100_000_000  # bytes; the broker's limit decides
TICK = 0.01  # seconds between bursts where a rate is asked for: a request an event would cost broker and client more


def emit(
    path: Config,
    flags: Set = None,
    file: Annotated[Path | None, typer.Option(help="Events, one JSON object a line; default: stdin.")] = None,
    topic: Annotated[str | None, typer.Option(help="Another topic than the first input topic.")] = None,
    key: Annotated[
        str | None, typer.Option(help="Key as a template over the event: '{carrier}-{flight}', '{after[id]}'.")
    ] = None,
    header: Annotated[list[str] | None, typer.Option(help="name=value, on every event; repeatable.")] = None,
    rate: Annotated[float | None, typer.Option(help="Events a second; default: as fast as they come.", min=0.001)] = None,
    as_json: Json = False,
) -> None:
    """Write events to the input topic."""
    settings = load(path, flags or []).settings
    pairs = [(name, value) for name, _, value in (item.partition("=") for item in header or [])]
    with file.open("rb") if file else contextlib.nullcontext(sys.stdin.buffer) as lines:
        count = write(settings, lines, topic=topic, key=key, headers=pairs, rate=rate)
    print_data(as_json, {"written": count}, lambda: f"{count} events written")


def key_of(template: str | None, line: bytes, number: int) -> bytes | None:
    """The key of an event by a template over its fields, `{carrier}-{flight}`. Raises Fatal where it has not those fields."""
    if template is None:
        return None
    try:
        return template.format_map(orjson.loads(line)).encode()
    except KeyError as error:
        said = f"line {number}: the event has no field {error.args[0]!r} for the key {template!r}"
    except (TypeError, ValueError, IndexError) as error:
        said = f"line {number}: no key {template!r}: {error}"
    raise Fatal(said, "check --key and the event", USAGE)


class Pace:
    """When an event may be written, in bursts of TICK seconds. Pure: `began` and `now` are monotonic seconds."""

    def __init__(self, rate: float | None, began: float) -> None:
        self._rate = rate
        self._began = began
        self._allowed = 0.0

    def pause(self, count: int, now: float) -> float:
        """Seconds to wait before event number `count` (from 0) is written."""
        if self._rate is None or count < self._allowed:
            return 0.0
        due = self._began + count / self._rate
        self._allowed = (max(now, due) + TICK - self._began) * self._rate
        return max(0.0, due - now)


class _Writer:
    """An idempotent producer for one topic that remembers what the broker did not take."""

    def __init__(self, settings: Settings, topic: str, headers: Sequence[tuple[str, str]]) -> None:
        """Connect before the first event gets its timestamp. Raises Fatal where the broker or the topic is not there."""
        name, tuning = f"{settings.name}.emit", {"linger.ms": 5, "message.max.bytes": LARGEST}
        topics.existing(settings.kafka, name, {topic: frozenset({WRITE})}, [topic])
        self.failures: list[KafkaError] = []
        self._settings = settings.kafka
        self._topic = topic
        self._headers: list[tuple[str, str | bytes | None]] | None = [*headers] or None
        self._producer = kafka.plain_producer(settings.kafka, name, partitioner="murmur2_random", **tuning)
        try:
            self._producer.list_topics(topic, CONNECT_SECONDS)
        except KafkaException as error:
            raise Fatal(f"no Kafka broker answers: {error.args[0].str()}", "check kafka.bootstrap_servers") from error

    def write(self, key: bytes | None, event: bytes) -> None:
        """Hand over one event; waits where the queue is full."""
        self._producer.poll(0)
        produce = partial(self._producer.produce, self._topic, event, key, on_delivery=self._note, headers=self._headers)
        try:
            produce()
        except BufferError:
            self._producer.flush(FLUSH_SECONDS)
            produce()

    def confirm(self) -> None:
        """Wait for every confirmation. Raises Fatal where the broker did not take an event."""
        left = self._producer.flush(FLUSH_SECONDS)
        if self.failures and self.failures[0] in REFUSED:
            raise rights.refused(self._settings, [Right(WRITE, rights.TOPIC, self._topic)])
        if self.failures or left:
            why = self.failures[0].str() if self.failures else f"{left} events were not confirmed within {FLUSH_SECONDS:.0f} s"
            raise Fatal(f"writing to {self._topic} failed: {why}", "check that the topic exists and the broker answers")

    def _note(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self.failures.append(error)


def write(
    settings: Settings,
    lines: Iterable[bytes],
    *,
    topic: str | None = None,
    key: str | None = None,
    headers: Sequence[tuple[str, str]] = (),
    rate: float | None = None,
) -> int:
    """Write the lines; the number written, each confirmed by the broker. `rate` is events a second. Partitions are chosen by
    key as the Java client does (murmur2). Raises Fatal where the broker did not take an event."""
    writer = _Writer(settings, topic or settings.input.topics[0], headers)
    pace, count = Pace(rate, time.monotonic()), 0
    for event in filter(None, (line.rstrip(b"\r\n") for line in lines)):
        if writer.failures:
            break
        if (pause := pace.pause(count, time.monotonic())) > 0:
            time.sleep(pause)
        count += 1
        writer.write(key_of(key, event, count), event)
        if count == 1:  # it waits half a second for its producer id: the others begin after that
            writer.confirm()
            pace = Pace(rate, time.monotonic())
    writer.confirm()
    return count
