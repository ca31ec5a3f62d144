"""One batch: decode, infer, encode. Every event becomes exactly one record: a score, an expired answer or a dead letter.

No Kafka call in here. Records keep the order of the events, whatever they become. A batch that the model refuses is halved
until the guilty event stands alone.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import TypeVar

import numpy as np

from publisher.positions import Position
from publisher.session import Record
from scorer.backends import InferenceFailed
from scorer.events.batch import Batch, Headers
from scorer.events.contract import Decoded, Poison, Reason
from scorer.events.identity import NO_FACTS, Facts, event_id
from scorer.scores.dead_letter import dead_headers
from scorer.servables.servable import Servable
from scorer.settings import Settings

T = TypeVar("T")
RECORD_OVERHEAD = 1_024  # bytes that a record and its headers add to key and value in the broker's count


@dataclass(frozen=True, slots=True)
class Target:
    """A topic that records are written to: how many partitions it has and the largest record it takes, in bytes."""

    topic: str
    partitions: int
    max_bytes: int


@dataclass(slots=True)
class Scored:
    """The records of a batch in the order of its events, and what became of them, for the metrics. Stages are seconds."""

    records: list[Record]
    outcomes: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    stages: dict[str, float] = field(default_factory=dict)


class Scoring:
    """Scores batches for one configuration."""

    def __init__(self, settings: Settings, output: Target, dead: Target) -> None:
        self.settings = settings
        self.output = output
        self.dead = dead

    def score(
        self, batch: Batch, servable: Servable, now_ms: Callable[[], int], alive: Callable[[], None] = lambda: None
    ) -> Scored:
        """A record for every event of the batch (none for a tombstone that is skipped). `now_ms` is the wall clock; `alive` is
        called before each time that the model is asked. Raises BackendAway.
        """
        work = _Work(self, batch, servable, now_ms)
        began = time.perf_counter()
        decoded = work.decode()
        decoded_at = time.perf_counter()
        answers = work.infer(decoded, alive)
        inferred_at = time.perf_counter()
        for at, scores in answers:
            work.add_scores(at, scores)
        work.add_expired()
        work.add_dead()
        work.scored.records = [record for record in work.slots if record]
        work.scored.stages = {
            "decode": decoded_at - began,
            "infer": inferred_at - decoded_at,
            "encode": time.perf_counter() - inferred_at,
        }
        return work.scored

    def give_up(self, batch: Batch, servable: Servable, now_ms: Callable[[], int], how: str) -> Scored:
        """Dead letters for all of the batch, without looking at it. `how` the process ended that had it in hand last."""
        work = _Work(self, batch, servable, now_ms)
        poison = Poison(Reason.CRASHES_SCORER, f"a process that had this event alone in hand {how}, twice")
        work.rejected = dict.fromkeys(range(len(batch)), poison)
        work.add_dead()
        work.scored.records = [record for record in work.slots if record is not None]
        return work.scored


class _Work:
    """One batch on its way. Rows are indices into the batch; `slots` has one record a row, `rejected` what is wrong."""

    def __init__(self, scoring: Scoring, batch: Batch, servable: Servable, now_ms: Callable[[], int]) -> None:
        self.scoring = scoring
        self.batch = batch
        self.servable = servable
        self.now_ms = now_ms
        self.slots: list[Record | None] = [None] * len(batch)
        self.rejected: dict[int, Poison] = {}
        self.expired: list[int] = []
        self.scored = Scored([])
        self.facts: list[Facts] | None = None  # None: no event has a header
        if any(batch.headers):
            self.facts = [Facts.of(headers) if headers else NO_FACTS for headers in batch.headers]
        self.field_ids: list[str | int | None] = [None] * len(batch)

    def decode(self) -> Decoded:
        """Decode what is to be scored; set the rest aside."""
        rows = list(range(len(self.batch)))
        if self.facts and any(facts.deadline is not None or facts.bad_deadline for facts in self.facts):
            rows = self._without_deadline_passed(rows, self.facts)
        if self.scoring.settings.input.tombstones == "skip":
            rows = [row for row in rows if self.batch.values[row] is not None]
        return self._decode(rows, self.rejected)

    def _decode(self, rows: list[int], rejected: dict[int, Poison]) -> Decoded:
        decoded = self.servable.decoder.decode(_pick(self.batch.values, rows))
        rejected |= {rows[at]: poison for at, poison in decoded.rejected.items()}
        decoded.rows = _pick(rows, decoded.rows)
        _place(self.field_ids, decoded.rows, decoded.ids)
        return decoded

    def _without_deadline_passed(self, rows: list[int], all_facts: Sequence[Facts]) -> list[int]:
        now = self.now_ms()
        kept = []
        for row in rows:
            facts = all_facts[row]
            if facts.bad_deadline is not None:
                error = f"header deadline is {facts.bad_deadline!r}, not a time in Unix ms"
                self.rejected[row] = Poison(Reason.BAD_DEADLINE, error)
            elif facts.deadline is not None and facts.deadline < now:
                self.expired.append(row)
            else:
                kept.append(row)
        return kept

    def infer(self, decoded: Decoded, alive: Callable[[], None]) -> list[tuple[list[int], "Answer"]]:
        """Answers of all good events as (rows, their scores); those that the model cannot answer are rejected."""
        answers = []
        spans = [(0, len(decoded.rows))]
        while spans:
            start, stop = spans.pop()
            if start == stop:
                continue
            alive()
            try:
                scores = self.servable.score(decoded.select(start, stop))
            except InferenceFailed as error:
                if stop - start == 1:
                    self.rejected[decoded.rows[start]] = Poison(Reason.INFERENCE_FAILED, str(error))
                else:
                    middle = (start + stop) // 2
                    spans += [(start, middle), (middle, stop)]
                continue
            rows = decoded.rows[start:stop]
            answer = Answer(scores.encoded(), scores.decisions(), "scored")
            finite = scores.finite()
            if not finite.all():
                self._reject_not_finite(rows, answer, np.flatnonzero(~finite).tolist())
                keep = np.flatnonzero(finite).tolist()
                rows = [rows[at] for at in keep]
                answer = Answer([answer.scores[k] for k in keep], [answer.decisions[k] for k in keep], "scored")
            answers.append((rows, answer))
        return answers

    def _reject_not_finite(self, rows: list[int], answer: "Answer", bad: Sequence[int]) -> None:
        for at in bad:
            error = f"the model answered {answer.scores[at].decode()}, which is not finite"
            self.rejected[rows[at]] = Poison(Reason.SCORE_NOT_FINITE, error)

    def add_expired(self) -> None:
        """Answers for events whose deadline has passed."""
        if self.expired:
            self._decode(self.expired, {})  # for the ids alone
            count = len(self.expired)
            self.add_scores(self.expired, Answer([b"null"] * count, [None] * count, "expired"))

    def add_scores(self, rows: list[int], answer: "Answer") -> None:
        """Score records into their slots; what is too large for the output topic is rejected."""
        batch, encoder, target = self.batch, self.servable.encoder, self.scoring.output
        partitions, times, keys = _pick(batch.partitions, rows), _pick(batch.timestamps, rows), _pick(batch.keys, rows)
        ids = self._ids(rows)
        values = encoder.encode(
            ids,
            answer.scores,
            answer.decisions,
            _pick(batch.places, rows),
            _pick(batch.offsets, rows),
            times,
            answer.status,
            self.now_ms(),
        )
        names = self.scoring.settings.output.headers
        headers: Sequence[Headers] = [None] * len(rows)
        if names:
            headers = encoder.headers(names, ids, answer.decisions, answer.status)
        if batch.carried is not None:
            headers = [[*(own or ()), *more] for own, more in zip(headers, _pick(batch.carried, rows), strict=True)]
        width = target.partitions
        out = [partition % width for partition in partitions]
        records: Sequence[Record] = list(zip(repeat(target.topic, len(rows)), values, keys, out, times, headers, strict=True))
        room = target.max_bytes - RECORD_OVERHEAD
        if max(map(len, values), default=0) + max(map(len, filter(None, keys)), default=0) > room:
            rows, records = self._without_oversize(rows, records, room)
        _place(self.slots, rows, records)
        self.scored.outcomes[answer.status] += len(records)

    def _ids(self, rows: list[int]) -> list[str]:
        fields, region = _pick(self.field_ids, rows), self.scoring.settings.region
        if self.facts is None and None not in fields:
            return list(map(str, fields))
        facts = _pick(self.facts, rows) if self.facts else repeat(NO_FACTS, len(rows))
        places, offsets = _pick(self.batch.places, rows), _pick(self.batch.offsets, rows)
        return [
            event_id(fact, named, region, (*place, offset))
            for fact, named, place, offset in zip(facts, fields, places, offsets, strict=True)
        ]

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

    def add_dead(self) -> None:
        """Dead letters into the slots of the rejected."""
        batch, target = self.batch, self.scoring.dead
        for row, poison in self.rejected.items():
            source = Position(self.scoring.settings.region, batch.topics[row], batch.partitions[row], batch.offsets[row])
            headers = dead_headers(
                batch.headers[row],
                reason=poison.reason,
                error=str(poison),
                source=source,
                model=self.servable.label,
                at_ms=self.now_ms(),
            )
            partition = batch.partitions[row] % target.partitions
            value, key = batch.values[row], batch.keys[row]
            self.slots[row] = (target.topic, value, key, partition, batch.timestamps[row], headers)
            self.scored.reasons[poison.reason] += 1
        self.scored.outcomes["dead"] += len(self.rejected)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the rows of a part of a batch are answered: encoded scores, decisions, and one status."""

    scores: Sequence[bytes]
    decisions: Sequence[str | None]
    status: str


def _pick(column: list[T], rows: list[int]) -> list[T]:
    """The entries of these rows, which ascend: the column itself where they are all."""
    return column if len(rows) == len(column) else [column[row] for row in rows]


def _place(column: list[T], rows: Sequence[int], values: Sequence[T]) -> None:
    """Put values into a column at these rows, which ascend."""
    if len(rows) == len(column):
        column[:] = values
    else:
        for row, value in zip(rows, values, strict=True):
            column[row] = value
