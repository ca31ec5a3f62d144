"""The Kafka feed: a thread that reads the scorers' topics into the console's state, and records outages of the broker.

Scores and labels are sampled: records beyond a rate are skipped, so that the console never lags and uses little CPU time.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable

from confluent_kafka import OFFSET_BEGINNING, KafkaException, Message, TopicPartition

from model_registry.untrusted_input.json_documents import UnreadableDocument
from publisher.errors import Fatal
from publisher.kafka import acls
from publisher.kafka.connection import connect
from publisher.kafka.headers import headers_of_one
from publisher.kafka.reader import TopicReader
from publisher.kafka.skipped_records import SkippedRecords
from publisher.kafka.topic_follower import TopicFollower
from scorer import topics
from scorer.console import records
from scorer.console.label_quality_fold import LabelQualityFold
from scorer.console.records import VersionChange
from scorer.console.score_distribution_fold import KEPT as SCORES_KEPT
from scorer.console.state import LETTERS_COUNTED, SWAPS_KEPT, ConsoleState
from scorer.console.topic_sampler import TopicSampler
from scorer.console.training.run_records import decode_run_record
from scorer.decoding.batch import Headers
from scorer.evaluation.join_labels import labels_of
from scorer.evaluation.label_record import Label
from scorer.replay import read_dead_letter as letters
from scorer.scores import formats
from scorer.settings import Settings

POLL_SECONDS = 0.25
PROBE_SECONDS = 3.0
RETENTION_SECONDS = 30.0  # between two checks of the first retained dead letters
RETRY_SECONDS = 2.0
SAMPLE = 2_000  # scores decoded per second
LABELS = 10_000  # labels decoded per second
LABELS_BACK = 50_000  # newest labels that are read at the start
TAIL_PARTITIONS = 2_000  # the recent records of a topic are divided among its partitions, at least one each
UNSEEN = 1 << 31, 1 << 62
"""Assumed for an input topic that this client may not describe: its number of partitions, and the largest record in bytes."""
log = logging.getLogger(__name__)


class NoIdReader:
    """An id reader that returns None for every record. It is used where ids are not needed."""

    def read_id(self, value: bytes | None, headers: Headers = None) -> None:
        """Return None, whatever the record contains."""


class KafkaFeed:
    """Read the scorers' topics in a thread that runs until `close`, and write the results to the console's state."""

    def __init__(self, settings: Settings, state: ConsoleState) -> None:
        self._settings = settings
        self._state = state
        self._skipped = SkippedRecords(log)
        self._closing = threading.Event()
        self._running: frozenset[str] = frozenset()
        self._handlers: dict[str, Callable[[Message], None]] = {
            settings.status_topic: self._status,
            settings.swaps_topic: self._swap,
            settings.dead_letter.topic: self._dead_letter,
            settings.replayed_topic: self._replayed,
            settings.output.topic: self._score,
            settings.rollouts_topic: self._rollout,
            settings.runs_topic: self._run_record,
        }
        self._as_json = formats.as_json(settings)
        self._sampled = {settings.output.topic: TopicSampler(settings.output.topic, SAMPLE, SCORES_KEPT + SAMPLE)}
        if topic := settings.labels.topic:
            labels = settings.labels
            state.labelled = LabelQualityFold(labels.max_events, tuple(labels.classes), numbers=labels.kind == "number")
            self._handlers[topic] = self._label
            self._read_label = labels_of(settings)
            self._sampled[topic] = TopicSampler(topic, LABELS, LABELS_BACK + LABELS)
        self._thread = threading.Thread(target=self._run, name="kafka", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the thread and wait until it has ended."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        name = f"{self._settings.name}.console"
        settings = self._settings.kafka
        required = self._settings.status_topic, self._settings.swaps_topic
        while not self._closing.is_set():
            try:
                self._following = TopicFollower(settings, name, acls.to_read(*self._handlers), required)
                with contextlib.closing(self._following):
                    self._begin()
                    self._read()
            except KafkaException as error:
                self._record_error(f"the broker does not respond: {error.args[0].str()}", "check the broker")
            except Fatal as error:
                self._record_error(str(error), error.hint)
            self._closing.wait(RETRY_SECONDS)

    def _record_error(self, text: str, hint: str) -> None:
        with self._state.lock:
            self._state.record_error("kafka", text, hint, time.time())

    def _begin(self) -> None:
        """Start reading the topics, and clear everything in the console's state that came from Kafka."""
        # The points of the flow charts stay.
        fresh = ConsoleState()
        state = self._state
        inputs = self._settings.input.topics
        self._reader = TopicReader(self._settings.kafka, f"{self._settings.name}.console")
        admin = connect(self._settings.kafka, f"{self._settings.name}.console")
        described = topics.describe(admin, self._settings.kafka, dict.fromkeys(inputs, frozenset()))
        self._inputs = dict.fromkeys(inputs, UNSEEN) | {
            name: (each.partitions, each.max_bytes) for name, each in described.items()
        }
        with state.lock:
            state.scorers = fresh.scorers
            state.swaps = fresh.swaps
            state.scores = fresh.scores
            state.letters = fresh.letters
            state.arms = fresh.arms
            state.rollouts = fresh.rollouts
            state.runs = fresh.runs
            state.outputs.waiting.clear()
        self._following.consumer.assign([self._start(*partition) for partition in self._following.unread])

    def _start(self, topic: str, partition: int) -> TopicPartition:
        """Return the partition with the offset at which to start reading it."""
        # Status records, rollouts and training runs are read from the beginning, of every other topic only a limited number of
        # the newest records.
        wanted = {
            self._settings.swaps_topic: SWAPS_KEPT + TAIL_PARTITIONS,
            self._settings.dead_letter.topic: LETTERS_COUNTED,
            self._settings.replayed_topic: 2 * LETTERS_COUNTED,
            self._settings.output.topic: SCORES_KEPT,
            self._settings.labels.topic: LABELS_BACK,
        }.get(topic)
        if wanted is None:
            return TopicPartition(topic, partition, OFFSET_BEGINNING)
        following = self._following
        low, high = following.consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10.0)
        start = max(low, high - max(1, wanted // following.topics[topic].partitions))
        if topic == self._settings.dead_letter.topic:
            self._state.letters.begin(partition, low, start)
        return TopicPartition(topic, partition, start)

    def _read(self) -> None:
        probe = time.time() + PROBE_SECONDS
        retention = time.time() + RETENTION_SECONDS
        with self._state.lock:
            self._state.clear_error("kafka")
        while not self._closing.is_set():
            for message in self._following.poll(POLL_SECONDS):
                with self._state.lock:
                    self._handle(message)
                    self._state.changed()
            with self._state.lock:
                self._update_progress()
            for sampled in self._sampled.values():
                sampled.skip(self._following.consumer, self._following.unread, time.time())
            if time.time() >= probe:
                self._probe()
                probe = time.time() + PROBE_SECONDS
            if time.time() >= retention:
                self._check_retention()
                retention = time.time() + RETENTION_SECONDS

    def _update_progress(self) -> None:
        """Record which topics were read to their end, and add a point to the throughput charts if one is due."""
        state = self._state
        behind = {topic for topic, _ in self._following.unread}
        if not state.loaded and not behind - self._sampled.keys():
            state.loaded = True
            state.changed()
        if state.flow.tick(state.scorers, time.time()):
            state.changed()
        if (running := state.runs.running(time.time())) != self._running:  # a killed run writes no record
            self._running = running
            state.changed()
        state.scorers.fleet.caught_up = self._settings.status_topic not in behind

    def _probe(self) -> None:
        """Check that a broker responds."""
        # Without this check, an outage would look the same as topics without new records.
        try:
            self._following.consumer.list_topics(self._settings.status_topic, timeout=PROBE_SECONDS)
        except KafkaException as error:
            servers = self._settings.kafka.bootstrap_servers
            self._record_error(f"no broker responds at {servers}: {error.args[0].str()}", "check that it is running")
        else:
            with self._state.lock:
                self._state.clear_error("kafka")

    def _check_retention(self) -> None:
        """Record the offset of the first retained dead letter of each partition. Raises Fatal."""
        topic = self._settings.dead_letter.topic
        if (existing := self._following.topics.get(topic)) is not None:
            lows = self._reader.earliest((topic, number) for number in range(existing.partitions))
            with self._state.lock:
                self._state.letters.set_low_offsets({number: low for (_, number), low in lows.items()})

    def _handle(self, message: Message) -> None:
        topic = message.topic() or ""
        if (sampled := self._sampled.get(topic)) is not None:
            sampled.budget -= 1
        self._handlers[topic](message)

    def _status(self, message: Message) -> None:
        self._state.scorers.add(message.key(), message.value(), time.time())

    def _swap(self, message: Message) -> None:
        if (record := records.decode(message.value(), VersionChange)) is not None:
            self._state.swaps.add(record)
        else:
            self._skip(message, "the record is not a version change")

    def _skip(self, message: Message, fault: object) -> None:
        self._skipped.skip(message.topic() or "", message.partition() or 0, message.offset() or 0, fault)

    def _dead_letter(self, message: Message) -> None:
        unfit = ""
        try:
            letters.check_target(letters.read_dead_letter(message, NoIdReader(), time.time_ns() // 1_000_000), self._inputs)
        except letters.NotReplayable as error:
            unfit = str(error)
        self._state.letters.add(records.dead_letter(message, headers_of_one(message) or [], unfit))

    def _replayed(self, message: Message) -> None:
        self._state.letters.add_replayed(self._settings.dead_letter.topic, message.key())

    def _score(self, message: Message) -> None:
        live = (message.topic(), message.partition()) not in self._following.unread
        try:
            record = records.decode_score(self._as_json(message.value() or b""))
        except (ValueError, Fatal) as error:
            self._skip(message, error)
            return
        if record is None:
            self._skip(message, "the record is not a score")
        else:
            self._state.add_score(record)
            self._state.arms.add(record)
            self._state.flow.add(record, time.time(), live=live)

    def _rollout(self, message: Message) -> None:
        self._state.rollouts.apply(message.key(), message.value())

    def _run_record(self, message: Message) -> None:
        if (value := message.value()) is None:
            return  # a deleted record
        try:
            record = decode_run_record(value)
        except UnreadableDocument as error:
            self._skip(message, error)
        else:
            self._state.runs.add(record, len(value), message.timestamp()[1] / 1_000, time.time())

    def _label(self, message: Message) -> None:
        label = self._read_label(message)
        if isinstance(label, Label):
            self._state.labelled.add_label(label)
        else:
            self._state.labelled.unusable[label] += 1
