"""The producer of `scorer emit`: an idempotent one for one topic, with a count of what became of each event."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

from publisher.errors import Fatal
from publisher.kafka import acls, topics
from publisher.kafka import clients as kafka
from publisher.kafka.acls import WRITE, Right
from publisher.kafka.connection import connect
from publisher.kafka.error_codes import NOT_WRITTEN, REFUSED
from publisher.runtime.interruption import Interruption
from scorer.emit.delivery_counts import Confirmations
from scorer.emit.record_template import InputRecord
from scorer.settings import Settings
from scorer.topics import describe

CONNECT_SECONDS = 10.0
CONFIRM_SECONDS = 30.0  # without one confirmation
WAIT_SECONDS = 0.1  # during which a signal is held back
PURGE_SECONDS = 1.0
LARGEST = 100_000_000  # bytes; the broker's limit decides


class EventWriter:
    """Writes events and counts their confirmations. Not for several threads.

    After an error `write` must not be called again. `close` must be called in any case: after it every event is counted.
    """

    def __init__(self, settings: Settings, topic: str, confirmations: Confirmations, interruption: Interruption) -> None:
        """Connect before the first event gets its timestamp. Raises Fatal if the broker or the topic is missing."""
        name, needed = f"{settings.name}.emit", {topic: frozenset({WRITE})}
        topics.existing(settings.kafka, name, needed, [topic])
        self._limit = describe(connect(settings.kafka, name), settings.kafka, needed)[topic]
        batch = min(self._limit.max_bytes, kafka.LARGEST_BATCH)  # a topic's limit is for what is sent together
        tuning = {"linger.ms": 5, "message.max.bytes": LARGEST, "batch.size": batch}
        self._confirmations = confirmations
        self._interruption = interruption
        self._failure: KafkaError | None = None
        self._too_large = 0  # bytes of the first event that the broker did not take for its size
        self._waits = True
        self._settings = settings.kafka
        self._topic = topic
        self._producer = kafka.plain_producer(settings.kafka, name, partitioner="murmur2_random", **tuning)
        try:
            self._producer.list_topics(topic, CONNECT_SECONDS)
        except KafkaException as error:
            raise Fatal(f"no Kafka broker answers: {error.args[0].str()}", "check kafka.bootstrap_servers") from error

    def write(self, line: int, record: InputRecord) -> None:
        """Hand over the event of a line; waits while the queue is full.

        Raises:
            Fatal: if an earlier event has failed, if this one is too large, or if the broker confirms nothing.
        """
        while not self._hand_over(line, record):
            if not self._wait(partial(self._answered_beyond, self._confirmations.answered), self._producer.poll):
                raise self._silent()
        if self._failure is not None:
            raise self._failed(self._failure)

    def confirm(self) -> None:
        """Wait for every confirmation. Raises Fatal if an event has failed, or if the broker confirms nothing."""
        complete = self._wait(lambda: self._confirmations.complete, self._producer.flush)
        if self._failure is not None:
            raise self._failed(self._failure)
        if not complete:
            raise self._silent()

    def close(self) -> None:
        """Wait for the events in flight unless that was in vain before, then take back those that were never sent."""
        try:
            self._wait(lambda: self._confirmations.complete, self._producer.flush)
        finally:
            with self._interruption:
                self._producer.purge()
                self._producer.flush(PURGE_SECONDS)

    def _hand_over(self, line: int, record: InputRecord) -> bool:
        """Return whether the queue took the event."""
        stated: dict[str, Any] = {} if record.time_ms is None else {"timestamp": record.time_ms}
        headers: Any = record.headers or None
        with self._interruption:
            self._producer.poll(0)
            self._confirmations.give(line)
            try:
                self._producer.produce(
                    self._topic,
                    record.value,
                    record.key,
                    on_delivery=partial(self._note, line),
                    headers=headers,
                    **stated,
                )
            except BufferError:
                self._confirmations.withdraw(line)
                return False
            except KafkaException as error:
                self._confirmations.withdraw(line)
                if error.args[0] != KafkaError.MSG_SIZE_TOO_LARGE:
                    raise
                hint = "leave the event out, or let its producer send a reference to the content in its place"
                raise Fatal(
                    f"an event of {len(record.value)} bytes: at most {LARGEST} are written (message.max.bytes)", hint
                ) from None
        return True

    def _wait(self, done: Callable[[], bool], serve: Callable[[float], object]) -> bool:
        """Serve confirmations until `done`, or until none has come for CONFIRM_SECONDS; return whether it is done."""
        seen, deadline = self._confirmations.answered, time.monotonic() + CONFIRM_SECONDS
        while self._waits and not done():
            with self._interruption:
                serve(WAIT_SECONDS)
            now = time.monotonic()
            if self._confirmations.answered > seen:
                seen, deadline = self._confirmations.answered, now + CONFIRM_SECONDS
            elif now > deadline:
                self._waits = False
        return done()

    def _answered_beyond(self, count: int) -> bool:
        return self._confirmations.answered > count

    def _silent(self) -> Fatal:
        return Fatal(
            f"writing to {self._topic} failed: no event was confirmed for {CONFIRM_SECONDS:.0f} s",
            "check that the topic exists and the broker answers",
        )

    def _failed(self, error: KafkaError) -> Fatal:
        """Return the error for the first event that failed."""
        if error in REFUSED:
            return acls.refused(self._settings, [Right(WRITE, acls.TOPIC, self._topic)])
        if self._too_large:
            return self._over_limit()
        return Fatal(f"writing to {self._topic} failed: {error.str()}", "check that the topic exists and the broker answers")

    def _over_limit(self) -> Fatal:
        """Return the error for an event that is larger than the topic takes, with the limit as far as it may be read."""
        stated = f"{self._limit.max_bytes} bytes" if self._limit.told else "not readable with these rights"
        return Fatal(
            f"an event of {self._too_large} bytes is larger than topic {self._topic} takes: its max.message.bytes is {stated}",
            f"raise max.message.bytes of {self._topic} and input.max_event_bytes, or leave the event out",
        )

    def _note(self, line: int, error: KafkaError | None, message: Message) -> None:
        """Count the answer for the event of a line."""
        if error is None:
            self._confirmations.confirm(line)
            return
        self._confirmations.fail(rejected=error in NOT_WRITTEN)
        self._failure = self._failure or error
        if error == KafkaError.MSG_SIZE_TOO_LARGE and not self._too_large:
            self._too_large = len(message.value() or b"") + len(message.key() or b"")
