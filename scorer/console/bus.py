"""The feed from the bus: one thread that reads the scorers' topics into the state, and says when the broker is away.

Scores are sampled: what cannot be read in time is skipped, so that the console never falls behind and never costs more than
a small share of a core, however much flows.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, Message, TopicPartition

from publisher.errors import REFUSED, Fatal
from publisher.kafka import clients as kafka
from publisher.kafka import error_codes, rights, topics
from publisher.kafka.connection import refused
from publisher.kafka.error_codes import END, PASSING
from publisher.kafka.headers import headers_of
from publisher.kafka.rights import READ, Right
from scorer.console import records
from scorer.console.distribution import KEPT as SCORES_KEPT
from scorer.console.letters import KEPT as LETTERS_KEPT
from scorer.console.state import State
from scorer.console.swaps import KEPT as SWAPS_KEPT
from scorer.scores import formats
from scorer.settings import Settings

POLL_SECONDS = 0.25
PROBE_SECONDS = 3.0
AGAIN_SECONDS = 2.0
SAMPLE = 2_000  # scores decoded in a second, at most
TAIL_PARTITIONS = 2_000  # recent records wanted of a topic are shared among its partitions, at least one of each
log = logging.getLogger(__name__)


class BusFeed:
    """Reads until `close`. `now` gives Unix seconds."""

    def __init__(self, settings: Settings, state: State, now: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._state = state
        self._now = now
        self._closing = threading.Event()
        self._handlers: dict[str, Callable[[Message], None]] = {
            settings.status_topic: self._status,
            settings.swaps_topic: self._swap,
            settings.dead_letter.topic: self._letter,
            settings.replayed_topic: self._replayed,
            settings.output.topic: self._score,
        }
        self._as_json = formats.as_json(settings)
        self._budget, self._budget_until = SCORES_KEPT + SAMPLE, 0.0
        self._behind: set[tuple[str, int]] = set()
        self._thread = threading.Thread(target=self._run, name="bus", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def close(self) -> None:
        """Stop reading."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                with self._consumer() as consumer:
                    self._read(consumer)
            except Fatal as error:
                with self._state.lock:
                    self._state.trouble("bus", str(error), error.hint, self._now())
            self._closing.wait(AGAIN_SECONDS)

    @contextlib.contextmanager
    def _consumer(self) -> Iterator[Consumer]:
        """A reader of all topics, from where each is of interest. Raises Fatal where one that scorers need is missing."""
        name, settings = f"{self._settings.name}.console", self._settings.kafka
        required = self._settings.status_topic, self._settings.swaps_topic
        found = topics.existing(settings, name, rights.to_read(*self._handlers), required)
        self._watch = kafka.ErrorWatch()
        consumer = kafka.reader(settings, name, **{"enable.partition.eof": True, "error_cb": self._watch})
        try:
            with self._state.lock:
                self._forget()
            places = [TopicPartition(topic, p) for topic in found for p in range(found[topic].partitions)]
            self._reading = {(place.topic, place.partition) for place in places}
            consumer.assign([self._start(consumer, place, found[place.topic].partitions) for place in places])
            yield consumer
        except KafkaException as error:
            raise Fatal(f"the broker does not answer: {error.args[0].str()}", "check the broker") from None
        finally:
            consumer.close()

    def _forget(self) -> None:
        """Everything is read again from a known place; the points of the flow stay."""
        fresh, state = State(), self._state
        state.scorers, state.swaps, state.scores, state.letters = fresh.scorers, fresh.swaps, fresh.scores, fresh.letters

    def _start(self, consumer: Consumer, place: TopicPartition, partitions: int) -> TopicPartition:
        """From where a partition is read: the whole status, the newest of the others."""
        wanted = {
            self._settings.swaps_topic: SWAPS_KEPT + TAIL_PARTITIONS,
            self._settings.dead_letter.topic: LETTERS_KEPT,
            self._settings.replayed_topic: 10 * LETTERS_KEPT,
            self._settings.output.topic: SCORES_KEPT,
        }.get(place.topic)
        if wanted is None:
            return TopicPartition(place.topic, place.partition, OFFSET_BEGINNING)
        low, high = consumer.get_watermark_offsets(place, timeout=10.0)
        return TopicPartition(place.topic, place.partition, max(low, high - max(1, wanted // partitions)))

    def _read(self, consumer: Consumer) -> None:
        probe = self._now() + PROBE_SECONDS
        with self._state.lock:
            self._state.well("bus")
        while not self._closing.is_set():
            first = consumer.poll(POLL_SECONDS)
            messages = [first, *consumer.consume(500, 0)] if first else []
            if self._watch.fatal is not None:
                raise refused(self._settings.kafka, self._watch.fatal)
            with self._state.lock:
                self._take(messages)
            self._skip(consumer)
            if self._now() >= probe:
                self._probe(consumer)
                probe = self._now() + PROBE_SECONDS

    def _take(self, messages: list[Message]) -> None:
        state, now = self._state, self._now()
        for message in messages:
            error = message.error()
            if error is None:
                self._handlers[message.topic() or ""](message)
            elif error in END:
                self._reading.discard((message.topic() or "", message.partition() or 0))
            else:
                self._mind(message.topic() or "", error)
        if messages:
            state.changed()
        if not state.loaded and not any(topic != self._settings.output.topic for topic, _ in self._reading):
            state.loaded = True
            state.changed()
        if state.flow.tick(state.scorers, now):
            state.changed()
        state.scorers.caught_up = not any(topic == self._settings.status_topic for topic, _ in self._reading)

    def _mind(self, topic: str, error: KafkaError) -> None:
        """Raises Fatal for an error that does not pass by itself."""
        if kafka.of_no_group(error) or error.retriable() or error in PASSING:
            return
        if error in error_codes.REFUSED:
            raise rights.refused(self._settings.kafka, [Right(READ, rights.TOPIC, topic)])
        raise Fatal(f"topic {topic} cannot be read: {error.str()}", "see the broker's log", REFUSED)

    def _probe(self, consumer: Consumer) -> None:
        """Whether the broker is there: silence alone does not say."""
        try:
            consumer.list_topics(self._settings.status_topic, timeout=PROBE_SECONDS)
        except KafkaException as error:
            servers = self._settings.kafka.bootstrap_servers
            with self._state.lock:
                self._state.trouble(
                    "bus", f"no broker answers at {servers}: {error.args[0].str()}", "is it running?", self._now()
                )
        else:
            with self._state.lock:
                self._state.well("bus")

    def _skip(self, consumer: Consumer) -> None:
        """Partitions of scores whose records came faster than they are sampled go on at their ends."""
        if self._now() >= self._budget_until:
            self._budget, self._budget_until = max(self._budget, SAMPLE), self._now() + 1.0
            for topic, partition in self._behind:
                with contextlib.suppress(KafkaException):
                    consumer.seek(TopicPartition(topic, partition, OFFSET_END))
                    consumer.resume([TopicPartition(topic, partition)])
            self._behind.clear()
        elif self._budget <= 0 and not self._behind:
            mine = [p for p in consumer.assignment() if p.topic == self._settings.output.topic]
            self._behind = {(p.topic, p.partition) for p in mine}
            self._reading -= self._behind
            consumer.pause(mine)

    def _status(self, message: Message) -> None:
        self._state.scorers.hear(message.key(), message.value(), self._now())

    def _swap(self, message: Message) -> None:
        if (record := records.swap(message.value())) is not None:
            self._state.swaps.hear(record)

    def _letter(self, message: Message) -> None:
        (headers,), _ = headers_of([message])
        place = message.partition() or 0, message.offset() or 0
        self._state.letters.hear(records.letter(*place, message.timestamp()[1], message.key(), message.value(), headers or []))

    def _replayed(self, message: Message) -> None:
        self._state.letters.hear_replayed(self._settings.dead_letter.topic, message.key())

    def _score(self, message: Message) -> None:
        self._budget -= 1
        live = (message.topic(), message.partition()) not in self._reading
        try:
            record = records.score(self._as_json(message.value() or b""))
        except (ValueError, Fatal) as error:
            log.debug("a record of %s is no score: %s", message.topic(), error)
            return
        if record is not None:
            self._state.scores.hear(record)
            self._state.flow.hear(record, self._now(), live=live)
