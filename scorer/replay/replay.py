"""Replay of dead letters: their events are written to their input topics again, each event at most once.

A replay may be killed, or run beside another one, without writing an event twice.
"""

# One transaction contains events and, in the compacted topic `<dead letters>.replayed`, the positions of their dead letters.
# All replays of a scorer share one transactional id. A new replay first fences an earlier replay, and then reads the positions
# that were replayed.

import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
from confluent_kafka import Message, Producer

from publisher.audit.offset_set import Bitmap
from publisher.errors import REFUSED, Aborted, Fatal, Fenced
from publisher.kafka import acls, source_position
from publisher.kafka import clients as kafka
from publisher.kafka.acls import READ, WRITE, Operations
from publisher.kafka.connection import connect
from publisher.kafka.reader import TopicReader
from publisher.kafka.source_position import Position
from publisher.runtime.interruption import Interruption
from publisher.runtime.progress_bars import ShowProgress, ignore_progress, read_with_progress
from publisher.transactions.exactly_once import TransactionSession
from publisher.transactions.session import Record
from publisher.transactions.transactional_ids import transactional_ids
from publisher.transactions.wait_for_open_transactions import OpenTransactions
from scorer import topics
from scorer.decoding import decoder_factory
from scorer.replay import read_dead_letter as letters
from scorer.replay.read_dead_letter import NotReplayable, ReplayableDeadLetter
from scorer.replay.selection import DeadLetterSelection
from scorer.settings import Settings

CHUNK_EVENTS = 500  # maximum number of events in one transaction
CHUNK_BYTES = 4 * 1_024 * 1_024
CHUNKS_PER_SECOND = 10.0  # if a rate is configured
EXAMPLES = 10  # maximum number of reported dead letters that cannot be replayed


@dataclass(slots=True)
class ReplaySummary:
    """The counts of dead letters in a replay, or in its dry run.

    Attributes:
        dry_run: whether nothing is written.
        replayed: the number of replayed dead letters by reason.
        uncertain: the number of dead letters in the last transaction, if it is unknown whether it was committed; else 0.
        late: the number of events that were replayed without their deadline, because the deadline has passed.
        before: the number of dead letters that an earlier replay has replayed.
        others: the number of dead letters that were not selected for the replay.
        unfit: the number of dead letters that cannot be replayed.
        examples: the positions of some dead letters that cannot be replayed, with the reasons.
    """

    dry_run: bool
    replayed: Counter[str] = field(default_factory=Counter)
    uncertain: int = 0
    late: int = 0
    before: int = 0
    others: int = 0
    unfit: int = 0
    examples: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return the summary for `--json`."""
        return {
            "dry_run": self.dry_run,
            "replayed": self.replayed.total(),
            "uncertain": self.uncertain,
            "by_reason": dict(sorted(self.replayed.items())),
            "deadlines_dropped": self.late,
            "replayed_before": self.before,
            "not_selected": self.others,
            "unfit": self.unfit,
            "unfit_examples": self.examples,
        }

    def progress(self) -> tuple[str, str]:
        """Return the progress as text, and a hint how to continue."""
        if self.dry_run:
            return "nothing was written", ""
        doubt = f", {self.uncertain:,} are uncertain" if self.uncertain else ""
        return f"{self.replayed.total():,} dead letters were replayed{doubt}", "run it again: it replays the others"

    def add(self, chunk: Sequence["ReplayableDeadLetter"]) -> None:
        """Count the dead letters of a chunk as replayed."""
        self.replayed.update(letter.reason for letter in chunk)
        self.late += sum(letter.late for letter in chunk)


def replay(
    settings: Settings,
    selection: DeadLetterSelection,
    summary: ReplaySummary,
    interruption: Interruption,
    rate: float | None = None,
    show: ShowProgress = ignore_progress,
) -> None:
    """Replay the selected dead letters, or only count them if `summary.dry_run` is set.

    Args:
        settings: the scorer's settings.
        selection: the dead letters to replay.
        summary: counts the results; also valid after an error.
        interruption: delays signals while a transaction is open.
        rate: the maximum number of events per second; None for no limit.
        show: shows the progress of reading.

    Raises:
        Fatal: with exit code 2 if a topic is missing, 3 if another replay has fenced this one, 4 if a transaction failed.
    """
    dry_run = summary.dry_run
    admin = connect(settings.kafka, _name(settings))
    described = topics.describe(admin, settings.kafka, _needed(settings, dry_run))
    topics.check_present(settings, admin, described, (settings.dead_letter.topic, settings.replayed_topic))
    inputs = {
        name: (described[name].partitions, described[name].max_bytes) for name in settings.input.topics if name in described
    }
    run = _ReplayRun(settings, selection, inputs, summary, show)
    if dry_run:
        for chunk in run.chunks(CHUNK_EVENTS):
            summary.add([letter for _, letter in chunk])
        return
    smallest = min(described[name].max_bytes for name in (*inputs, settings.replayed_topic))
    with contextlib.closing(_session(settings, smallest)) as session:
        session.open()
        _write(session, settings, run, interruption, rate)


def _needed(settings: Settings, dry_run: bool) -> dict[str, Operations]:
    if dry_run:
        return acls.to_read(settings.dead_letter.topic, settings.replayed_topic) | acls.to_describe(*settings.input.topics)
    inputs = dict.fromkeys(settings.input.topics, frozenset({WRITE}))
    return inputs | acls.to_read(settings.dead_letter.topic) | {settings.replayed_topic: frozenset({READ, WRITE})}


def _name(settings: Settings) -> str:
    return f"{settings.name}.replay"


def _session(settings: Settings, batch_bytes: int) -> TransactionSession:
    name = _name(settings)
    seconds = settings.kafka.transaction_timeout_ms / 1_000

    def producer(transactional_id: str) -> Producer:
        return kafka.transactional_producer(settings.kafka, transactional_id, name, batch_bytes)

    opened = OpenTransactions(settings.kafka, name, (*settings.input.topics, settings.replayed_topic))
    ids = transactional_ids(f"{settings.name}/replay")
    return TransactionSession(producer, ids, transaction_seconds=seconds, wait_until_decided=opened.wait)


def _write(
    session: TransactionSession, settings: Settings, run: "_ReplayRun", interruption: Interruption, rate: float | None
) -> None:
    most = CHUNK_EVENTS if rate is None else min(CHUNK_EVENTS, max(1, int(rate / CHUNKS_PER_SECOND)))
    start = time.monotonic()
    written = 0
    for chunk in run.chunks(most):
        if rate is not None:
            time.sleep(max(0.0, start + written / rate - time.monotonic()))
        records = [record for place, letter in chunk for record in (letter.record, _replayed_record(settings, place, letter))]
        with interruption:
            run.summary.uncertain = len(chunk)
            try:
                session.publish(records)
            except Fenced as error:
                raise Fatal("another replay of this scorer has taken over", "run one replay at a time", REFUSED) from error
            except Aborted as error:
                raise Fatal(f"a transaction failed: {error}") from error
            run.summary.uncertain = 0
            run.summary.add([letter for _, letter in chunk])
        written += len(chunk)


def _replayed_record(settings: Settings, place: Position, letter: ReplayableDeadLetter) -> Record:
    """Return the record of the topic `.replayed` which states that the dead letter at this position was replayed."""
    value = {"id": letter.id, "source": str(letter.source), "reason": letter.reason}
    return settings.replayed_topic, orjson.dumps(value), str(place).encode(), -1, 0, None


class _ReplayRun:
    """One run of a replay: selects the dead letters to replay, without those that earlier runs have replayed."""

    def __init__(
        self,
        settings: Settings,
        selection: DeadLetterSelection,
        inputs: dict[str, tuple[int, int]],
        summary: ReplaySummary,
        show: ShowProgress = ignore_progress,
    ) -> None:
        self.summary = summary
        self._show = show
        self._settings = settings
        self._selection = selection
        self._inputs = inputs
        self._reader = TopicReader(settings.kafka, _name(settings))
        self._ids = decoder_factory.create_id_reader(settings)
        self._replayed: dict[int, Bitmap] = {}

    def chunks(self, most: int) -> Iterator[list[tuple[Position, ReplayableDeadLetter]]]:
        """Yield the dead letters to replay, with their positions, in chunks of at most `most`.

        Dead letters of the same partition are in the order of their offsets.
        """
        # A chunk has at most CHUNK_BYTES bytes, unless it is a single dead letter.
        self._read_replayed()
        chunk: list[tuple[Position, ReplayableDeadLetter]] = []
        size = 0
        for place, message in self._unreplayed():
            letter = self._letter(place, message)
            if letter is None:
                continue
            if chunk and (len(chunk) >= most or size + letter.size > CHUNK_BYTES):
                yield chunk
                chunk = []
                size = 0
            chunk.append((place, letter))
            size += letter.size
        if chunk:
            yield chunk

    def _read_replayed(self) -> None:
        for message in self._messages(self._settings.replayed_topic):
            with contextlib.suppress(ValueError):  # a key that this command did not write
                place = source_position.parse(message.key() or b"")
                if place.topic == self._settings.dead_letter.topic:
                    self._replayed.setdefault(place.partition, Bitmap()).add(np.array([place.offset], np.int64))

    def _unreplayed(self) -> Iterator[tuple[Position, Message]]:
        topic = self._settings.dead_letter.topic
        for message in self._messages(topic):
            partition = message.partition() or 0
            offset = message.offset() or 0
            if self._replayed.setdefault(partition, Bitmap()).add(np.array([offset], np.int64))[0]:
                yield Position(self._settings.region, topic, partition, offset), message
            else:
                self.summary.before += 1

    def _letter(self, place: Position, message: Message) -> ReplayableDeadLetter | None:
        """Read the dead letter at this position. If it is not selected or cannot be replayed, count it and return None."""
        try:
            letter = letters.read_dead_letter(message, self._ids, time.time_ns() // 1_000_000)
            if not self._selection.includes(letter):
                self.summary.others += 1
                return None
            letters.check_target(letter, self._inputs)
        except NotReplayable as error:
            self.summary.unfit += 1
            if len(self.summary.examples) < EXAMPLES:
                self.summary.examples.append(f"{place.topic}[{place.partition}]@{place.offset}: {error}")
            return None
        return letter

    def _messages(self, topic: str) -> Iterator[Message]:
        """Yield every committed record of a topic up to its end at the time of the call."""
        spans = self._reader.spans(self._reader.partitions([topic]))
        for batch in read_with_progress(self._reader, spans, self._show, f"reading {topic}"):
            yield from batch.messages
