"""One batch: decode, infer, encode. Every event becomes exactly one record: a score, an expired answer or a dead letter.

No Kafka call in here. Records keep the order of the events, whatever they become. A batch over which anything is raised is
halved until the guilty event stands alone, which becomes a dead letter. What tells of somebody who is away is raised further.
Where a canary has a share of the keys, its events are worked apart (`candidate.py`), into the same slots.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from model_registry.channels.roles import CANARY, CHAMPION
from publisher.errors import Aborted, Fatal, Retriable
from publisher.kafka.source_position import Position
from publisher.transactions.protocol import Record
from scorer.backends.base import InferenceFailed
from scorer.dead_letters.headers import dead_headers
from scorer.dead_letters.internal_error import InternalErrorLog
from scorer.dead_letters.reasons import Poison, Reason
from scorer.decoding.batch import Batch
from scorer.decoding.record_metadata import BatchMetadata
from scorer.decoding.types import Decoded, decode_after_look_ups
from scorer.models.constant_fallback import FALLBACK, ConstantFallback
from scorer.models.servable import Servable
from scorer.native.produce_records import ColumnarRecords
from scorer.scores.answer import BatchAnswers
from scorer.settings import Settings
from scorer.worker import canary_scoring
from scorer.worker.canary_routing import AWAY, Arms
from scorer.worker.columns import pick, placed
from scorer.worker.header_facts import HeaderFacts
from scorer.worker.score_records import ScoreRecords, Target

NO_EVENTS_FAULT = (Retriable, Aborted, Fatal)  # Away is a Fatal
UNREAD = Poison(Reason.NOT_UTF8, "the name of a header is not UTF-8; the event's headers are left out here")


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
    packed: ColumnarRecords | None = None
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


def not_read(batch: Batch) -> dict[int, Poison]:
    """Why there is nothing to score in these entries of a batch."""
    without = {row: Poison(Reason.UNREADABLE_BATCH, found.why) for row, found in batch.unreadable.items()}
    return dict.fromkeys(batch.unread, UNREAD) | without


class Scoring:
    """Scores batches for one configuration. A batch waits `look_up_seconds` for the schemas of its events."""

    def __init__(self, settings: Settings, output: Target, dead: Target, *, look_up_seconds: float = math.inf) -> None:
        self.settings = settings
        self.output = output
        self.dead = dead
        self.look_up_seconds = look_up_seconds
        self.internal_errors = InternalErrorLog()
        self.fallback = ConstantFallback.of(settings.model.fallback)

    def narrow(self, output: Target, dead: Target) -> bool:
        """Write to no more partitions than these topics have; return whether that changes anything.

        A topic that was recreated may have fewer. More partitions are used only after a restart: keys would change places.
        """
        before = self.output, self.dead
        self.output, self.dead = self.output.narrowed(output), self.dead.narrowed(dead)
        return (self.output, self.dead) != before

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
        `deadlines` no event comes too late. Raises Away, and LookUpsPending if the schemas of its events take too long.
        """
        work = Work(self, batch, servable, now_ms, arms)
        work.deadlines = deadlines
        work.rejected = not_read(batch)
        if arms is None:
            work.answer_all(range(len(batch)), alive)
        else:
            canary_scoring.answer(work, servable, arms, alive)
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
        work.rejected = not_read(batch)
        if arms is None:
            work.answer_all(range(len(batch)), alive)
        else:
            canary_scoring.answer(work, servable, Arms(arms.canary, None, AWAY), alive)
        return work.finished()

    def give_up(
        self, batch: Batch, servable: Servable, now_ms: Callable[[], int], how: str, arms: Arms | None = None
    ) -> Scored:
        """Dead letters for all of the batch, without looking at it. `how` the process ended that had it in hand last."""
        work = Work(self, batch, servable, now_ms, arms)
        poison = Poison(Reason.CRASHES_SCORER, f"a process that had this event alone in hand {how}, twice")
        work.rejected = dict.fromkeys(range(len(batch)), poison) | not_read(batch)
        return work.finished()

    def letter(
        self, batch: Batch, row: int, poison: Poison, servable: Servable, at_ms: int, arm: str = CHAMPION
    ) -> Record | None:
        """The dead letter of one event of a batch, made at `at_ms` (Unix ms); None where none is written."""
        source = Position(self.settings.region, batch.topics[row], batch.partitions[row], batch.offsets[row])
        unreadable = batch.unreadable.get(row)
        headers = dead_headers(
            batch.headers[row],
            reason=poison.reason,
            error=str(poison),
            source=source,
            model=servable.label,
            at_ms=at_ms,
            arm=arm,
            first=None if unreadable is None else unreadable.first,
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
        constant: ConstantFallback | None = None,
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
        self.records = ScoreRecords(batch, self.facts, scoring.settings, scoring.output, now_ms)

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
                    self.servable.loaded.vouch()
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
        decoded = self.decode(fresh, self.rejected, alive)
        decoded_at = time.perf_counter()
        answers = [self._inferred(decoded, alive)] if decoded.rows else []
        inferred_at = time.perf_counter()
        if expired:
            self.decode(expired, {}, alive)  # for the ids alone
            count = len(expired)
            answers.append((expired, BatchAnswers("expired", [b"null"] * count, [None] * count)))
        made = [self._told(at, answer) for at, answer in answers]
        for at, records, status in made:
            self.place(at, records, status)
        self.timed(began, decoded_at, inferred_at)

    def tell(self, rows: list[int], answer: BatchAnswers) -> None:
        """Records of these rows that say this."""
        self.place(*self._told(rows, answer))

    def skipped(self) -> set[int]:
        """The rows that are answered by nothing."""
        return set(self.batch.tombstones()) if self.scoring.settings.input.tombstones == "skip" else set()

    def place(self, at: Sequence[int], records: Sequence[Record], status: str) -> None:
        """These are the records of these rows."""
        if isinstance(records, ColumnarRecords):
            self.scored.packed = records
        else:
            self.scored.slots = placed(self.scored.slots, at, records)
        self.scored.expired |= set(at) if status == "expired" else set()
        self.scored.outcomes[status] += len(at)

    def timed(self, began: float, decoded: float, inferred: float) -> None:
        """The stages of an answer that is made by now ended then."""
        encoded = time.perf_counter()
        self.scored.stages.update({"decode": decoded - began, "infer": inferred - decoded, "encode": encoded - inferred})

    def decode(self, rows: list[int], rejected: dict[int, Poison], alive: Callable[[], None]) -> Decoded:
        """The tensors of these rows, as the version that answers reads them; ids and carried fields are kept."""
        values, parts = pick(self.batch.values, rows), BatchMetadata(self.batch, rows)
        decoded = decode_after_look_ups(self.servable.loaded.decoder, values, parts, alive, self.scoring.look_up_seconds)
        rejected |= {rows[at]: poison for at, poison in decoded.rejected.items()}
        decoded.rows = list(pick(rows, decoded.rows))
        self.records.learn(decoded)
        return decoded

    def _inferred(self, decoded: Decoded, alive: Callable[[], None]) -> tuple[list[int], BatchAnswers]:
        """The good events whose score is finite, with their scores; the others are rejected. Raises InferenceFailed."""
        rows = decoded.rows
        if self.constant is not None:
            return rows, self.constant.answer(len(rows))
        scores = self.servable.loaded.score(decoded.select(0, len(rows)), alive)
        answer = BatchAnswers("scored", columns=scores)
        finite = scores.finite()
        if finite.all():
            return rows, answer
        for at in np.flatnonzero(~finite).tolist():
            error = f"the model answered {answer.scores[at].decode():.500}, which is not finite"
            self.rejected[rows[at]] = Poison(Reason.SCORE_NOT_FINITE, error)
        keep = np.flatnonzero(finite).tolist()
        kept = BatchAnswers("scored", [answer.scores[k] for k in keep], [answer.decisions[k] for k in keep])
        return [rows[at] for at in keep], kept

    def _told(self, rows: list[int], answer: BatchAnswers) -> tuple[list[int], Sequence[Record], str]:
        """Rows, their records and their status; those whose record the output topic would refuse are rejected."""
        kept, records, refused = self.records.of(rows, answer, self.servable.encoder)
        self.rejected |= refused
        return kept, records, answer.status

    def finished(self) -> Scored:
        """The outcome, with dead letters in the slots of the rejected. Raw bytes are copied and nothing is parsed."""
        scored = self.scored
        for row, poison in self.rejected.items():
            arm = scored.arm(row)
            scored.slots[row] = self.scoring.letter(self.batch, row, poison, self.servable, self.now_ms(), arm)
            scored.reasons[poison.reason] += 1
        scored.outcomes["dead"] += len(self.rejected)
        return scored
