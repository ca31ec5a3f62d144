"""`scorer replay`: dead letters go back to where they came from, each at most once.

The events and the positions of their dead letters (in the compacted topic `<dead letters>.replayed`) become visible in one
transaction. One transactional id prefix for all replays of a scorer: a replay fences the one that began before
it, and reads what that one has done only after that. So neither a kill nor two at once put an event back twice.
"""

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
from publisher.transactions.exactly_once import TransactionSession
from publisher.transactions.protocol import Record
from publisher.transactions.transactional_ids import transactional_ids
from publisher.transactions.wait_for_decided import OpenTransactions
from scorer import topics
from scorer.decoding import decoder_factory
from scorer.replay import dead_letter as letters
from scorer.replay.dead_letter import DeadLetterSelection, NotReplayable, ReplayableDeadLetter
from scorer.settings import Settings

CHUNK_EVENTS = 500  # of one transaction
CHUNK_BYTES = 4 * 1_024 * 1_024
CHUNKS_A_SECOND = 10.0  # where a rate is asked for
EXAMPLES = 10  # of letters that cannot be put back


@dataclass(slots=True)
class ReplaySummary:
    """What was done, or would be: `replayed` by reason, `late` of them without their deadline, which has passed; `before` were
    replayed earlier, `others` not asked for. `uncertain` are in a transaction that may have been committed."""

    dry_run: bool
    replayed: Counter[str] = field(default_factory=Counter)
    uncertain: int = 0
    late: int = 0
    before: int = 0
    others: int = 0
    unfit: int = 0
    examples: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
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
        """Return how far the replay has come, in words, and how to continue."""
        if self.dry_run:
            return "nothing was written", ""
        doubt = f", {self.uncertain:,} are uncertain" if self.uncertain else ""
        return f"{self.replayed.total():,} dead letters were replayed{doubt}", "run it again: it replays the others"

    def add(self, chunk: Sequence["ReplayableDeadLetter"]) -> None:
        """Count letters as replayed."""
        self.replayed.update(letter.reason for letter in chunk)
        self.late += sum(letter.late for letter in chunk)


def replay(
    settings: Settings,
    selection: DeadLetterSelection,
    summary: ReplaySummary,
    interruption: Interruption,
    rate: float | None = None,
) -> None:
    """Put back the dead letters that a selection takes, or count them if the summary is that of a dry run.

    Args:
        settings: the scorer's settings.
        selection: which dead letters.
        summary: counts what was done, also if this raises.
        interruption: holds signals back during a transaction.
        rate: events a second at most.

    Raises:
        Fatal: with code 2 if a topic is missing, 3 if another replay has taken over, 4 if a transaction did not succeed.
    """
    dry_run = summary.dry_run
    admin = connect(settings.kafka, _name(settings))
    found = topics.describe(admin, settings.kafka, _needed(settings, dry_run))
    topics.check_present(settings, admin, found, (settings.dead_letter.topic, settings.replayed_topic))
    inputs = {name: (found[name].partitions, found[name].max_bytes) for name in settings.input.topics if name in found}
    run = _ReplayRun(settings, selection, inputs, summary)
    if dry_run:
        for chunk in run.chunks(CHUNK_EVENTS):
            summary.add([letter for _, letter in chunk])
        return
    smallest = min(found[name].max_bytes for name in (*inputs, settings.replayed_topic))
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
    name, seconds = _name(settings), settings.kafka.transaction_timeout_ms / 1_000

    def producer(transactional_id: str) -> Producer:
        return kafka.transactional_producer(settings.kafka, transactional_id, name, batch_bytes)

    opened = OpenTransactions(settings.kafka, name, (*settings.input.topics, settings.replayed_topic))
    ids = transactional_ids(f"{settings.name}/replay")
    return TransactionSession(producer, ids, transaction_seconds=seconds, wait_until_decided=opened.wait)


def _write(
    session: TransactionSession, settings: Settings, run: "_ReplayRun", interruption: Interruption, rate: float | None
) -> None:
    most = CHUNK_EVENTS if rate is None else min(CHUNK_EVENTS, max(1, int(rate / CHUNKS_A_SECOND)))
    began, written = time.monotonic(), 0
    for chunk in run.chunks(most):
        if rate is not None:
            time.sleep(max(0.0, began + written / rate - time.monotonic()))
        records = [record for place, letter in chunk for record in (letter.record, _note(settings, place, letter))]
        with interruption:
            run.summary.uncertain = len(chunk)
            try:
                session.publish(records)
            except Fenced as error:
                raise Fatal("another replay of this scorer has taken over", "let one run at a time end", REFUSED) from error
            except Aborted as error:
                raise Fatal(f"a transaction failed: {error}") from error
            run.summary.uncertain = 0
            run.summary.add([letter for _, letter in chunk])
        written += len(chunk)


def _note(settings: Settings, place: Position, letter: ReplayableDeadLetter) -> Record:
    """The record that says that the dead letter at `place` was replayed."""
    value = {"id": letter.id, "source": str(letter.source), "reason": letter.reason}
    return settings.replayed_topic, orjson.dumps(value), str(place).encode(), -1, 0, None


class _ReplayRun:
    """Reads what was replayed, then the dead letters, and hands out what is to be put back."""

    def __init__(
        self, settings: Settings, selection: DeadLetterSelection, inputs: dict[str, tuple[int, int]], summary: ReplaySummary
    ) -> None:
        self.summary = summary
        self._settings = settings
        self._selection = selection
        self._inputs = inputs
        self._reader = TopicReader(settings.kafka, _name(settings))
        self._ids = decoder_factory.create_id_reader(settings)
        self._done: dict[int, Bitmap] = {}

    def chunks(self, most: int) -> Iterator[list[tuple[Position, ReplayableDeadLetter]]]:
        """Up to `most` letters with their places, in the order of each partition of the dead-letter topic."""
        self._read_done()
        chunk: list[tuple[Position, ReplayableDeadLetter]] = []
        size = 0
        for place, message in self._unreplayed():
            letter = self._letter(place, message)
            if letter is None:
                continue
            if chunk and (len(chunk) >= most or size + letter.size > CHUNK_BYTES):
                yield chunk
                chunk, size = [], 0
            chunk.append((place, letter))
            size += letter.size
        if chunk:
            yield chunk

    def _read_done(self) -> None:
        for message in self._messages(self._settings.replayed_topic):
            with contextlib.suppress(ValueError):  # a key that this command did not write
                place = source_position.parse(message.key() or b"")
                if place.topic == self._settings.dead_letter.topic:
                    self._done.setdefault(place.partition, Bitmap()).add(np.array([place.offset], np.int64))

    def _unreplayed(self) -> Iterator[tuple[Position, Message]]:
        topic = self._settings.dead_letter.topic
        for message in self._messages(topic):
            partition, offset = message.partition() or 0, message.offset() or 0
            if self._done.setdefault(partition, Bitmap()).add(np.array([offset], np.int64))[0]:
                yield Position(self._settings.region, topic, partition, offset), message
            else:
                self.summary.before += 1

    def _letter(self, place: Position, message: Message) -> ReplayableDeadLetter | None:
        """None where it is not asked for, or cannot be put back."""
        try:
            letter = letters.read_dead_letter(message, self._ids, time.time_ns() // 1_000_000)
            if not self._selection.takes(letter):
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
        """Every committed record up to the end as it is now."""
        for batch in self._reader.read(self._reader.spans(self._reader.partitions([topic]))):
            yield from batch.messages
