"""One batch: decode, infer, encode. Every event becomes exactly one record: a score, an expired answer or a dead letter.

No Kafka call in here. Records keep the order of the events, whatever they become. A batch over which anything is raised is
halved until the guilty event stands alone, which becomes a dead letter. What tells of somebody who is away is raised further.
Where a canary has a share of the keys, its events are worked apart (`candidate.py`), into the same slots.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from model_registry.channels.roles import CANARY, CHAMPION
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
from scorer.loop import two_versions
from scorer.loop.arms import AWAY, Arms
from scorer.loop.columns import pick, placed
from scorer.loop.header_facts import HeaderFacts
from scorer.servables.answer import Answer
from scorer.servables.fallback import FALLBACK, Constant
from scorer.servables.packing import Part, packed
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
    them all. `expired` has the indices of events that came too late; the others that are no dead letters are of `status`.
    `arms` says which are the canary's, None: none; the candidate was `asked` for so many, and `failed` at so many that the
    champion answered. `fallbacks` counts those by why, and those for which the candidate was not asked. The other fields are
    for the metrics; stages are seconds.
    """

    slots: list[Record | None]
    status: str = "scored"
    expired: set[int] = field(default_factory=set)
    outcomes: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    stages: Counter[str] = field(default_factory=Counter)
    packed: PackedRecords | None = None
    arms: NDArray[np.bool_] | None = None
    asked: int = 0
    failed: int = 0
    fallbacks: Counter[str] = field(default_factory=Counter)

    @property
    def records(self) -> Sequence[Record]:
        """The records, in the order of the events."""
        return self.packed or [record for record in self.slots if record]

    def arm(self, row: int) -> str:
        """Whose share of the keys this event's is in."""
        return CANARY if self.arms is not None and self.arms[row] else CHAMPION

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
        self.fallback = Constant.of(settings.model.fallback)

    def score(
        self,
        batch: Batch,
        servable: Servable,
        now_ms: Callable[[], int],
        alive: Callable[[], None] = lambda: None,
        arms: Arms | None = None,
        *,
        deadlines: bool = True,
    ) -> Scored:
        """A record for every event of the batch (none for a tombstone that is skipped). `servable` is the champion, `arms` says
        which events are not its. `now_ms` is the wall clock; `alive` is called before each time that a model is asked; without
        `deadlines` no event comes too late. Raises Away.
        """
        work = Work(self, batch, servable, now_ms, arms)
        work.deadlines = deadlines
        work.rejected = dict.fromkeys(batch.unread, UNREAD)
        if arms is None:
            work.answer_all(range(len(batch)), alive)
        else:
            two_versions.answer(work, servable, arms, alive)
        return work.finished()

    def fall_back(
        self,
        batch: Batch,
        servable: Servable,
        now_ms: Callable[[], int],
        alive: Callable[[], None] = lambda: None,
        arms: Arms | None = None,
    ) -> Scored:
        """The same, with `model.fallback` instead of what any model says."""
        work = Work(self, batch, servable, now_ms, arms, self.fallback)
        work.rejected = dict.fromkeys(batch.unread, UNREAD)
        if arms is None:
            work.answer_all(range(len(batch)), alive)
        else:
            two_versions.answer(work, servable, Arms(arms.canary, None, AWAY), alive)
        return work.finished()

    def give_up(
        self, batch: Batch, servable: Servable, now_ms: Callable[[], int], how: str, arms: Arms | None = None
    ) -> Scored:
        """Dead letters for all of the batch, without looking at it. `how` the process ended that had it in hand last."""
        work = Work(self, batch, servable, now_ms, arms)
        poison = Poison(Reason.CRASHES_SCORER, f"a process that had this event alone in hand {how}, twice")
        work.rejected = dict.fromkeys(range(len(batch)), poison)
        return work.finished()

    def letter(
        self, batch: Batch, row: int, poison: Poison, servable: Servable, at_ms: int, arm: str = CHAMPION
    ) -> Record | None:
        """The dead letter of one event of a batch, made at `at_ms` (Unix ms); None where none is written."""
        source = Position(self.settings.region, batch.topics[row], batch.partitions[row], batch.offsets[row])
        headers = dead_headers(
            batch.headers[row],
            reason=poison.reason,
            error=str(poison),
            source=source,
            model=servable.label,
            at_ms=at_ms,
            arm=arm,
        )
        partition = batch.partitions[row] % self.dead.partitions
        return self.dead.topic, batch.values[row], batch.keys[row], partition, batch.timestamps[row], headers


class Work:
    """One batch on its way. Rows are indices into the batch; `rejected` says what is wrong with those that are no good. Who
    answers is `servable`, which may change from some rows to others; with `constant` no model is asked."""

    def __init__(
        self,
        scoring: Scoring,
        batch: Batch,
        servable: Servable,
        now_ms: Callable[[], int],
        arms: Arms | None = None,
        constant: Constant | None = None,
    ) -> None:
        self.scoring = scoring
        self.batch = batch
        self.servable = servable
        self.now_ms = now_ms
        self.deadlines = True
        self.rejected: dict[int, Poison] = {}
        self.constant = constant
        status = FALLBACK if constant else "scored"
        self.scored = Scored([None] * len(batch), status, arms=None if arms is None else arms.canary)
        self.facts = HeaderFacts(batch)
        self.field_ids: Sequence[str | int | None] = [None] * len(batch)
        self.carried: Sequence[Row | None] | None = None

    def answer_all(self, among: Sequence[int], alive: Callable[[], None]) -> None:
        """Answer those of these rows that are not rejected, together where nothing is raised over them, else in halves."""
        rows = list(among)
        spans = [[row for row in rows if row not in self.rejected] if self.rejected else rows]
        while spans:
            rows = spans.pop()
            alive()
            try:
                self.answer(rows, alive)
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

    def answer(self, rows: list[int], alive: Callable[[], None]) -> None:
        """Scores, expired answers and rejections of these rows, all of them or none."""
        began = time.perf_counter()
        fresh, expired, bad = self.facts.by_deadline(rows, self.now_ms() if self.deadlines else 0)
        self.rejected |= bad
        if missing := self.skipped():
            fresh = [row for row in fresh if row not in missing]
        decoded = self.decode(fresh, self.rejected)
        decoded_at = time.perf_counter()
        answers = [self._inferred(decoded, alive)] if decoded.rows else []
        inferred_at = time.perf_counter()
        if expired:
            self.decode(expired, {})  # for the ids alone
            count = len(expired)
            answers.append((expired, Answer("expired", [b"null"] * count, [None] * count)))
        made = [(*self._records(at, answer), answer.status) for at, answer in answers]
        for at, records, status in made:
            self.place(at, records, status)
        self.timed(began, decoded_at, inferred_at)

    def tell(self, rows: list[int], answer: Answer) -> None:
        """Records of these rows that say this."""
        self.place(*self._records(rows, answer), answer.status)

    def skipped(self) -> set[int]:
        """The rows that are answered by nothing."""
        return set(self.batch.tombstones()) if self.scoring.settings.input.tombstones == "skip" else set()

    def place(self, at: Sequence[int], records: Sequence[Record], status: str) -> None:
        """These are the records of these rows."""
        if isinstance(records, PackedRecords):
            self.scored.packed = records
        else:
            self.scored.slots = placed(self.scored.slots, at, records)
        self.scored.expired |= set(at) if status == "expired" else set()
        self.scored.outcomes[status] += len(at)

    def timed(self, began: float, decoded: float, inferred: float) -> None:
        """The stages of an answer that is made by now ended then."""
        encoded = time.perf_counter()
        self.scored.stages.update({"decode": decoded - began, "infer": inferred - decoded, "encode": encoded - inferred})

    def decode(self, rows: list[int], rejected: dict[int, Poison]) -> Decoded:
        """The tensors of these rows, as the version that answers reads them; ids and carried fields are kept."""
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
        rows = decoded.rows
        if self.constant is not None:
            return rows, self.constant.answer(len(rows))
        scores = self.servable.loaded.score(decoded.select(0, len(rows)), alive)
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
        if answer.columns is not None and len(rows) == len(batch):
            part = Part(np.arange(len(rows)), answer.columns, encoder)
            if (packed := self.packed([part])) is not None:
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

    def packed(self, parts: Sequence[Part]) -> PackedRecords | None:
        """The records of all rows as columns, which these parts make up; None where they are not plain, or one is too large."""
        if self.facts.matter or self.scoring.settings.output.headers:
            return None
        target = self.scoring.output
        names, carried, at_ms = self.facts.names or self.field_ids, self.carried, self.now_ms()
        found = packed(self.batch, names, parts, target.topic, target.partitions, at_ms, carried)
        return found if found is not None and found.largest_record <= target.max_bytes - RECORD_OVERHEAD else None

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
            arm = scored.arm(row)
            scored.slots[row] = self.scoring.letter(self.batch, row, poison, self.servable, self.now_ms(), arm)
            scored.reasons[poison.reason] += 1
        scored.outcomes["dead"] += len(self.rejected)
        return scored
