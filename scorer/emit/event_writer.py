"""The producer of `scorer emit`: idempotent, for one topic, with a count of the delivery results."""

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
CONFIRM_SECONDS = 30.0  # the longest wait without any delivery result; then writing fails
WAIT_SECONDS = 0.1  # the time of one poll, during which signals are delayed
PURGE_SECONDS = 1.0  # the longest wait for the delivery results of dropped events
MAX_RECORD_BYTES = 100_000_000  # the limit of the producer, so high that the limit of the broker applies first


class EventWriter:
    """Writes events to a topic and counts their delivery results. One thread makes all calls.

    After `write` has raised an error, it must not be called again. `close` must always be called, because it completes the
    counts.
    """

    def __init__(self, settings: Settings, topic: str, confirmations: Confirmations, interruption: Interruption) -> None:
        """Connect the producer in advance, so that the first event has no delay.

        Raises Fatal if no broker answers, if the broker denies access, or if the topic does not exist.
        """
        name = f"{settings.name}.emit"
        needed = {topic: frozenset({WRITE})}
        topics.existing(settings.kafka, name, needed, [topic])
        self._limit = describe(connect(settings.kafka, name), settings.kafka, needed)[topic]
        batch = min(self._limit.max_bytes, kafka.LARGEST_BATCH)  # the limit of a topic applies to a batch
        tuning = {"linger.ms": 5, "message.max.bytes": MAX_RECORD_BYTES, "batch.size": batch}
        self._confirmations = confirmations
        self._interruption = interruption
        self._failure: KafkaError | None = None
        self._too_large = 0  # bytes of the first event that was too large for the broker
        self._waits = True
        self._settings = settings.kafka
        self._topic = topic
        self._producer = kafka.plain_producer(settings.kafka, name, partitioner="murmur2_random", **tuning)
        try:
            self._producer.list_topics(topic, CONNECT_SECONDS)
        except KafkaException as error:
            raise Fatal(f"no Kafka broker answers: {error.args[0].str()}", "check kafka.bootstrap_servers") from error

    def write(self, line: int, record: InputRecord) -> None:
        """Pass the event of a line to the producer; wait while its queue is full.

        Raises:
            Fatal: An earlier event has failed, this event is too large, or there is no delivery result for CONFIRM_SECONDS.
        """
        while not self._hand_over(line, record):
            if not self._wait(partial(self._answered_beyond, self._confirmations.completed), self._producer.poll):
                raise self._silent()
        if self._failure is not None:
            raise self._failed(self._failure)

    def confirm(self) -> None:
        """Wait until every event is confirmed.

        Raises:
            Fatal: An event has failed, or there is no delivery result for CONFIRM_SECONDS.
        """
        complete = self._wait(lambda: self._confirmations.complete, self._producer.flush)
        if self._failure is not None:
            raise self._failed(self._failure)
        if not complete:
            raise self._silent()

    def close(self) -> None:
        """Wait for the delivery results of events in flight, then drop the events that remain in the producer."""
        # After a time-out of an earlier wait, there is no wait.
        try:
            self._wait(lambda: self._confirmations.complete, self._producer.flush)
        finally:
            with self._interruption:
                self._producer.purge()
                self._producer.flush(PURGE_SECONDS)

    def _hand_over(self, line: int, record: InputRecord) -> bool:
        """Pass an event to the producer; return False if its queue is full. Raises Fatal if the event is too large."""
        timestamp: dict[str, Any] = {} if record.time_ms is None else {"timestamp": record.time_ms}
        headers: Any = record.headers or None
        with self._interruption:
            self._producer.poll(0)
            self._confirmations.add_sent(line)
            try:
                self._producer.produce(
                    self._topic,
                    record.value,
                    record.key,
                    on_delivery=partial(self._note, line),
                    headers=headers,
                    **timestamp,
                )
            except BufferError:
                self._confirmations.undo_sent(line)
                return False
            except KafkaException as error:
                self._confirmations.undo_sent(line)
                if error.args[0] != KafkaError.MSG_SIZE_TOO_LARGE:
                    raise
                hint = "remove the event, or write a reference to its content instead"
                raise Fatal(
                    f"an event has {len(record.value)} bytes, but the limit is {MAX_RECORD_BYTES} (message.max.bytes)",
                    hint,
                ) from None
        return True

    def _wait(self, done: Callable[[], bool], serve: Callable[[float], object]) -> bool:
        """Poll for delivery results until `done()` is true, or no result has arrived for CONFIRM_SECONDS; return `done()`.

        `serve(seconds)` polls the producer for this time.
        """
        # After one wait has timed out, later calls return at once.
        seen = self._confirmations.completed
        deadline = time.monotonic() + CONFIRM_SECONDS
        while self._waits and not done():
            with self._interruption:
                serve(WAIT_SECONDS)
            now = time.monotonic()
            if self._confirmations.completed > seen:
                seen = self._confirmations.completed
                deadline = now + CONFIRM_SECONDS
            elif now > deadline:
                self._waits = False
        return done()

    def _answered_beyond(self, count: int) -> bool:
        return self._confirmations.completed > count

    def _silent(self) -> Fatal:
        return Fatal(
            f"writing to {self._topic} failed: no event was confirmed for {CONFIRM_SECONDS:.0f} s",
            "check that the topic exists and the broker responds",
        )

    def _failed(self, error: KafkaError) -> Fatal:
        """Return the error for the first event that failed."""
        if error in REFUSED:
            return acls.refused(self._settings, [Right(WRITE, acls.TOPIC, self._topic)])
        if self._too_large:
            return self._over_limit()
        return Fatal(f"writing to {self._topic} failed: {error.str()}", "check that the topic exists and the broker responds")

    def _over_limit(self) -> Fatal:
        """Return the error for an event that exceeds the topic's size limit. The message has the limit if it can be read."""
        limit = f"{self._limit.max_bytes} bytes" if self._limit.limit_known else "not readable with these rights"
        return Fatal(
            f"an event of {self._too_large} bytes is too large for topic {self._topic}: its max.message.bytes is {limit}",
            f"raise max.message.bytes of {self._topic} and input.max_event_bytes, or remove the event",
        )

    def _note(self, line: int, error: KafkaError | None, message: Message) -> None:
        """Count the delivery result of a line's event, and store the first error. The producer calls this method."""
        if error is None:
            self._confirmations.confirm(line)
            return
        self._confirmations.fail(rejected=error in NOT_WRITTEN)
        self._failure = self._failure or error
        if error == KafkaError.MSG_SIZE_TOO_LARGE and not self._too_large:
            self._too_large = len(message.value() or b"") + len(message.key() or b"")
