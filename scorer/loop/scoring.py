"""One batch: decode, infer, encode. Every event becomes exactly one record: a score, an expired answer or a dead letter.

No Kafka call in here. Records keep the order of the events, whatever they become. A batch over which anything is raised is
halved until the guilty event stands alone, which becomes a dead letter. What tells of somebody who is away is raised further.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import repeat

import numpy as np

from publisher.errors import Aborted, Fatal, Retriable
from publisher.positions import Position
from publisher.session.protocol import Record
from scorer.backends import InferenceFailed
from scorer.dead_letters.headers import dead_headers
from scorer.events.batch import Batch, Headers
from scorer.events.decoder import Decoded, Poison, Reason
from scorer.events.internal_errors import InternalErrors
from scorer.events.native.records import PackedRecords
from scorer.events.record_parts import BatchParts
from scorer.loop.columns import pick, placed
from scorer.loop.header_facts import HeaderFacts
from scorer.servables.answer import Answer
from scorer.servables.packing import packed
from scorer.servables.servable import Servable
from scorer.settings import Settings
from scorer.settings.carry import Row

RECORD_OVERHEAD = 1_024  # bytes that a record and its headers add to key and value in the broker's count
NO_EVENTS_FAULT = (Retriable, Aborted, Fatal)  # Away is a Fatal
UNREAD = Poison(Reason.NOT_UTF8, "the name of a header is not UTF-8; the event's headers are left out here")


@dataclass(frozen=True, slots=True)
class Target:
    """A topic that records are written to: how many partitions it has and the largest record it takes, in bytes."""

    topic: str
    partitions: int
    max_bytes: int


@dataclass(slots=True)
class Scored:
    """The outcome of a batch. `slots` has the record of each event (None for a tombstone that is skipped), unless `packed` has
    them all. `expired` has the indices of events that came too late. The other fields are for the metrics; stages are seconds.
    """

    slots: list[Record | None]
    expired: set[int] = field(default_factory=set)
    outcomes: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    stages: Counter[str] = field(default_factory=Counter)
    packed: PackedRecords | None = None

    @property
    def records(self) -> Sequence[Record]:
        """The records, in the order of the events."""
        return self.packed or [record for record in self.slots if record]

    def unpack(self) -> None:
        """Have all records in `slots`, where each can be replaced."""
        if self.packed is not None:
            self.slots, self.packed = list(self.packed), None


class Scoring:
    """Scores batches for one configuration."""

    def __init__(self, settings: Settings, output: Target, dead: Target) -> None:
        self.settings = settings
        self.output = output
        self.dead = dead
        self.internal_errors = InternalErrors()

    def score(
        self, batch: Batch, servable: Servable, now_ms: Callable[[], int], alive: Callable[[], None] = lambda: None
    ) -> Scored:
        """A record for every event of the batch (none for a tombstone that is skipped). `now_ms` is the wall clock; `alive` is
        called before each time that the model is asked. Raises Away.
        """
        work = _Work(self, batch, servable, now_ms)
        work.rejected = dict.fromkeys(batch.unread, UNREAD)
        work.answer_all(alive)
        return work.finished()

    def give_up(self, batch: Batch, servable: Servable, now_ms: Callable[[], int], how: str) -> Scored:
        """Dead letters for all of the batch, without looking at it. `how` the process ended that had it in hand last."""
        work = _Work(self, batch, servable, now_ms)
        poison = Poison(Reason.CRASHES_SCORER, f"a process that had this event alone in hand {how}, twice")
        work.rejected = dict.fromkeys(range(len(batch)), poison)
        return work.finished()

    def letter(self, batch: Batch, row: int, poison: Poison, servable: Servable, at_ms: int) -> Record:
        """The dead letter of one event of a batch, made at `at_ms` (Unix ms)."""
        source = Position(self.settings.region, batch.topics[row], batch.partitions[row], batch.offsets[row])
        headers = dead_headers(
            batch.headers[row],
            reason=poison.reason,
            error=str(poison),
            source=source,
            model=servable.label,
            at_ms=at_ms,
        )
        partition = batch.partitions[row] % self.dead.partitions
        return self.dead.topic, batch.values[row], batch.keys[row], partition, batch.timestamps[row], headers


class _Work:
    """One batch on its way. Rows are indices into the batch; `rejected` says what is wrong with those that are no good."""

    def __init__(self, scoring: Scoring, batch: Batch, servable: Servable, now_ms: Callable[[], int]) -> None:
        self.scoring = scoring
        self.batch = batch
        self.servable = servable
        self.now_ms = now_ms
        self.rejected: dict[int, Poison] = {}
        self.scored = Scored([None] * len(batch))
        self.facts = HeaderFacts(batch)
        self.field_ids: Sequence[str | int | None] = [None] * len(batch)
        self.carried: Sequence[Row | None] | None = None

    def answer_all(self, alive: Callable[[], None]) -> None:
        """Answer the rows that are not rejected, together where nothing is raised over them, else in halves."""
        rows = list(range(len(self.batch)))
        spans = [[row for row in rows if row not in self.rejected] if self.rejected else rows]
        while spans:
            rows = spans.pop()
            alive()
            try:
                self._answer(rows, alive)
            except NO_EVENTS_FAULT:
                raise
            except Exception as error:  # noqa: BLE001 - an event that raises must not stop its partition
                for row in rows:
                    self.rejected.pop(row, None)
                if len(rows) > 1:
                    middle = len(rows) // 2
                    spans += [rows[middle:], rows[:middle]]
                elif isinstance(error, InferenceFailed):
                    self.rejected[rows[0]] = Poison(Reason.INFERENCE_FAILED, str(error))
                else:
                    self.rejected[rows[0]] = self.scoring.internal_errors.poison(error)

    def _answer(self, rows: list[int], alive: Callable[[], None]) -> None:
        """Scores, expired answers and rejections of these rows, all of them or none."""
        began = time.perf_counter()
        fresh, expired, bad = self.facts.by_deadline(rows, self.now_ms())
        self.rejected |= bad
        if self.scoring.settings.input.tombstones == "skip":
            missing = set(self.batch.tombstones())
            fresh = [row for row in fresh if row not in missing] if missing else fresh
        decoded = self._decode(fresh, self.rejected)
        decoded_at = time.perf_counter()
        answers = [self._inferred(decoded, alive)] if decoded.rows else []
        inferred_at = time.perf_counter()
        if expired:
            self._decode(expired, {})  # for the ids alone
            count = len(expired)
            answers.append((expired, Answer("expired", [b"null"] * count, [None] * count)))
        made = [(*self._records(at, answer), answer.status) for at, answer in answers]
        for at, records, status in made:
            if isinstance(records, PackedRecords):
                self.scored.packed = records
            else:
                self.scored.slots = placed(self.scored.slots, at, records)
            self.scored.expired |= set(at) if status == "expired" else set()
            self.scored.outcomes[status] += len(at)
        encoded_at = time.perf_counter()
        self.scored.stages.update(
            {"decode": decoded_at - began, "infer": inferred_at - decoded_at, "encode": encoded_at - inferred_at}
        )

    def _decode(self, rows: list[int], rejected: dict[int, Poison]) -> Decoded:
        decoded = self.servable.loaded.decoder.decode(pick(self.batch.values, rows), BatchParts(self.batch, rows))
        rejected |= {rows[at]: poison for at, poison in decoded.rejected.items()}
        decoded.rows = list(pick(rows, decoded.rows))
        whole = len(decoded.rows) == len(self.batch)
        self.field_ids = decoded.ids if whole else placed(self.field_ids, decoded.rows, decoded.ids)
        if decoded.carried is not None:
            self.carried = placed(self.carried or [None] * len(self.batch), decoded.rows, decoded.carried)
        return decoded

    def _inferred(self, decoded: Decoded, alive: Callable[[], None]) -> tuple[list[int], Answer]:
        """The good events whose score is finite, with their scores; the others are rejected. Raises InferenceFailed."""
        scores = self.servable.loaded.score(decoded.select(0, len(decoded.rows)), alive)
        rows = decoded.rows
        answer = Answer("scored", columns=scores)
        finite = scores.finite()
        if finite.all():
            return rows, answer
        for at in np.flatnonzero(~finite).tolist():
            error = f"the model answered {answer.scores[at].decode():.500}, which is not finite"
            self.rejected[rows[at]] = Poison(Reason.SCORE_NOT_FINITE, error)
        keep = np.flatnonzero(finite).tolist()
        kept = Answer("scored", [answer.scores[k] for k in keep], [answer.decisions[k] for k in keep])
        return [rows[at] for at in keep], kept

    def _records(self, rows: list[int], answer: Answer) -> tuple[list[int], Sequence[Record]]:
        """Rows and their score records; those that are too large for the output topic are rejected."""
        batch, encoder, target = self.batch, self.servable.encoder, self.scoring.output
        room = target.max_bytes - RECORD_OVERHEAD
        if (packed := self._packed(rows, answer)) is not None and packed.largest_record <= room:
            return rows, packed
        partitions, times, keys = pick(batch.partitions, rows), pick(batch.timestamps, rows), pick(batch.keys, rows)
        ids = self.facts.ids(rows, pick(self.field_ids, rows), self.scoring.settings.region)
        values = self._encoded(rows, ids, answer, room)
        names = self.scoring.settings.output.headers
        headers: Sequence[Headers] = [None] * len(rows)
        if names:
            headers = encoder.headers(names, ids, answer.decisions, answer.status)
        if batch.carried is not None:
            headers = [[*(own or ()), *more] for own, more in zip(headers, pick(batch.carried, rows), strict=True)]
        width = target.partitions
        out = [partition % width for partition in partitions]
        records: Sequence[Record] = list(zip(repeat(target.topic, len(rows)), values, keys, out, times, headers, strict=True))
        if max(map(len, values), default=0) + max(map(len, filter(None, keys)), default=0) > room:
            return self._without_oversize(rows, records, room)
        return rows, records

    def _encoded(self, rows: list[int], ids: Sequence[str], answer: Answer, room: int) -> Sequence[bytes]:
        """The values of score records. One that only what it carries makes too large carries nothing."""
        batch = self.batch
        where = pick(batch.places, rows), pick(batch.offsets, rows), pick(batch.timestamps, rows)
        columns = ids, answer.scores, answer.decisions, *where, answer.status, self.now_ms()
        carried = None if self.carried is None else pick(self.carried, rows)
        values = self.servable.encoder.encode(*columns, carried)
        sizes = (
            [len(value) + len(key or b"") for value, key in zip(values, pick(batch.keys, rows), strict=True)] if carried else []
        )
        if max(sizes, default=0) <= room:
            return values
        bare = self.servable.encoder.encode(*columns, None)
        return [value if size <= room else other for value, other, size in zip(values, bare, sizes, strict=True)]

    def _packed(self, rows: list[int], answer: Answer) -> PackedRecords | None:
        """The records of all rows as columns; None where they are not all, or not plain."""
        if answer.columns is None or len(rows) < len(self.batch) or self.facts.matter or self.scoring.settings.output.headers:
            return None
        encoder, target = self.servable.encoder, self.scoring.output
        return packed(
            self.batch,
            self.facts.names or self.field_ids,
            answer.columns,
            encoder,
            target.topic,
            target.partitions,
            self.now_ms(),
            self.carried,
        )

    def _without_oversize(self, rows: list[int], records: Sequence[Record], room: int) -> tuple[list[int], Sequence[Record]]:
        """Rows and records without those that the output topic would refuse, which are rejected."""
        kept = []
        for row, record in zip(rows, records, strict=True):
            _, value, key, *_ = record
            if len(value or b"") + len(key or b"") > room:
                target = self.scoring.output
                error = (
                    f"the score record has {len(value or b'')} bytes beside its key; {target.topic} takes {target.max_bytes}"
                )
                self.rejected[row] = Poison(Reason.SCORE_OVERSIZE, error)
            else:
                kept.append((row, record))
        return [row for row, _ in kept], [record for _, record in kept]

    def finished(self) -> Scored:
        """The outcome, with dead letters in the slots of the rejected. Raw bytes are copied and nothing is parsed."""
        scored = self.scored
        for row, poison in self.rejected.items():
            scored.slots[row] = self.scoring.letter(self.batch, row, poison, self.servable, self.now_ms())
            scored.reasons[poison.reason] += 1
        scored.outcomes["dead"] += len(self.rejected)
        return scored
