"""Score one batch: every event becomes exactly one record, which is a score, an expired answer or a dead letter.

Only a skipped tombstone gets no record. The records have the order of the events. This module does not call Kafka. If a
server that scoring needs is unavailable, DependencyUnavailable is raised.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from model_registry.channels.roles import CANARY, CHAMPION
from publisher.kafka.source_position import Position
from publisher.runtime.context import Context
from publisher.transactions.session import Record
from scorer.backends.base import InferenceFailed
from scorer.dead_letters.headers import dead_headers
from scorer.dead_letters.internal_error import InternalErrorLog
from scorer.dead_letters.reasons import Poison, Reason
from scorer.decoding.batch import Batch
from scorer.features.record_builder import FeatureRecordBuilder, FeatureRecords, in_order
from scorer.features.sample import KeySample
from scorer.models.constant_fallback import FALLBACK, ConstantFallback
from scorer.models.servable import Servable
from scorer.native.produce_records import ColumnarRecords
from scorer.settings import Settings
from scorer.worker.canary_routing import UNAVAILABLE, Arms
from scorer.worker.canary_scoring import CanaryResult, score_with_canary
from scorer.worker.encode import TargetTopic
from scorer.worker.pipeline import AnswerSource, Pipeline, ReadBatch, ScoredRows, score_in_halves, total_seconds
from scorer.worker.read_headers import read_headers

UNREAD = Poison(Reason.NOT_UTF8, "the name of a header is not UTF-8; the dead letter omits the headers of the event")
FOREVER = Context()


@dataclass(frozen=True, slots=True)
class ScoredBatch:
    """The records of a scored batch, and counts of the outcomes for the metrics.

    Attributes:
        slots: the record of each event; None for an event without a record. Not used if `packed` has all records.
        status: the status of answered events that have not expired: "scored", or "fallback" if the constant fallback answered.
        expired: the rows whose deadline had passed.
        outcomes: the number of events by status; "dead" counts dead letters.
        reasons: the number of dead letters by reason.
        stages: the duration of each stage in seconds.
        packed: all records as columns; None if the records are in `slots`.
        arms: (B,) booleans, whether each event belongs to the canary; None without a canary.
        requested: the number of events that were passed to the candidate.
        failed: how many of the `requested` events the candidate could not answer, so that the champion answered.
        fallbacks: the number of the canary's events that the champion answered, by reason.
        features: the feature records of the events.
        dropped_features: the number of feature records that were left out, by reason.
    """

    slots: list[Record | None]
    status: str = "scored"
    expired: set[int] = field(default_factory=set)
    outcomes: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    stages: Counter[str] = field(default_factory=Counter)
    packed: ColumnarRecords | None = None
    arms: NDArray[np.bool_] | None = None
    requested: int = 0
    failed: int = 0
    fallbacks: Counter[str] = field(default_factory=Counter)
    features: Sequence[FeatureRecords] = ()
    dropped_features: Counter[str] = field(default_factory=Counter)

    @property
    def records(self) -> Sequence[Record]:
        """All scores and dead letters, in the order of the events."""
        return self.packed or [record for record in self.slots if record]

    def arm(self, row: int) -> str:
        """Return the role, CHAMPION or CANARY, that the event of this row belongs to by its key."""
        return CANARY if self.arms is not None and self.arms[row] else CHAMPION

    def editable(self) -> "ScoredBatch":
        """Return a copy with all records in `slots`. Records in the copy can be replaced without a change of this object."""
        slots = list(self.slots if self.packed is None else self.packed)
        return replace(
            self,
            slots=slots,
            packed=None,
            outcomes=Counter(self.outcomes),
            reasons=Counter(self.reasons),
            dropped_features=Counter(self.dropped_features),
        )


def merge(batch: Batch, scored: Sequence[ScoredRows], status: str = "scored") -> ScoredBatch:
    """Join the results of disjoint sets of rows into one scored batch. The caller adds dead letters for rejected rows."""
    slots: list[Record | None] = [None] * len(batch)
    packed: ColumnarRecords | None = None
    expired: set[int] = set()
    outcomes: Counter[str] = Counter()
    for part in (encoded for scored_rows in scored for encoded in scored_rows.encoded):
        if isinstance(part.records, ColumnarRecords):
            packed = part.records
        elif len(part.rows) == len(batch):
            slots = list(part.records)
        else:
            for row, record in zip(part.rows, part.records, strict=True):
                slots[row] = record
        if part.status == "expired":
            expired.update(part.rows)
        outcomes[part.status] += len(part.rows)
    features = [part for scored_rows in scored for part in scored_rows.features]
    dropped: Counter[str] = Counter()
    for feature_records in features:
        dropped.update(feature_records.dropped)
    return ScoredBatch(
        slots,
        status,
        expired,
        outcomes,
        stages=total_seconds(scored),
        packed=packed,
        features=in_order(features),
        dropped_features=dropped,
    )


def unreadable_rows(batch: Batch) -> dict[int, Poison]:
    """Return the unreadable rows with the reason: a header name is not UTF-8, or a record batch cannot be read."""
    ranges = {row: Poison(Reason.UNREADABLE_BATCH, entry.reason) for row, entry in batch.unreadable.items()}
    return dict.fromkeys(batch.unread, UNREAD) | ranges


def feature_builder(settings: Settings, target: TargetTopic | None) -> FeatureRecordBuilder | None:
    """Return the builder of feature records for the configured sample of events and the topic `target`; None without one."""
    if target is None:
        return None
    return FeatureRecordBuilder(target.topic, target.partitions, target.room, KeySample.of(settings.features.sample))


class BatchScorer:
    """Turns a batch of events into a batch of records: scores, expired answers and dead letters.

    Args:
        settings: the settings of the scorer.
        output: the topic of scores.
        dead: the topic of dead letters.
        features: the topic of the feature log; None to write no feature records.
        look_up_seconds: the longest wait for the schemas of a batch, in seconds.
    """

    def __init__(
        self,
        settings: Settings,
        output: TargetTopic,
        dead: TargetTopic,
        features: TargetTopic | None = None,
        *,
        look_up_seconds: float = math.inf,
    ) -> None:
        self.settings = settings
        self.dead = dead
        self._features = features
        self.pipeline = Pipeline(settings, output, look_up_seconds, feature_builder(settings, features))
        self._internal_errors = InternalErrorLog()
        self._fallback = ConstantFallback.of(settings.model.fallback)

    @property
    def output(self) -> TargetTopic:
        """The topic of scores."""
        return self.pipeline.output

    @property
    def largest_request(self) -> int:
        """The size limit of a record in bytes: the smallest limit of the topics of scores, dead letters and feature records."""
        features = [self._features.max_bytes] if self._features else []
        return min(self.output.max_bytes, self.dead.max_bytes, *features)

    def reduce_partitions(self, output: TargetTopic, dead: TargetTopic, features: TargetTopic | None = None) -> bool:
        """Use at most as many partitions as the topics have now. Return whether the number in use has changed.

        A recreated topic may have fewer partitions than before. Added partitions are used only after a restart, because keys
        would move to other partitions.
        """
        before = self.output, self.dead, self._features
        if self._features is not None and features is not None:
            self._features = self._features.reduced_to(features)
        log = feature_builder(self.settings, self._features)
        self.pipeline = replace(self.pipeline, output=self.output.reduced_to(output), features=log)
        self.dead = self.dead.reduced_to(dead)
        return (self.output, self.dead, self._features) != before

    def score(
        self,
        batch: Batch,
        servable: Servable,
        context: Context = FOREVER,
        arms: Arms | None = None,
        *,
        deadlines: bool = True,
    ) -> ScoredBatch:
        """Return a record for every event of the batch, except for skipped tombstones.

        Args:
            batch: the events.
            servable: the champion.
            context: its check is called before each run of a model, and may raise to end the call.
            arms: the assignment of events to champion and canary; None if the champion answers all events.
            deadlines: whether events expire if their deadline has passed.

        Raises:
            DependencyUnavailable: a server that scoring needs is unavailable.
            LookUpsPending: the look-ups of schemas take longer than `look_up_seconds`.
            ModelBroken: the model no longer answers its control row.
        """
        return self._score(batch, AnswerSource(servable), context, arms, deadlines=deadlines)

    def fall_back(self, batch: Batch, servable: Servable, context: Context = FOREVER, arms: Arms | None = None) -> ScoredBatch:
        """Return a record for every event as `score` does, with the constant `model.fallback` in place of a model's answer."""
        if arms is not None:
            arms = Arms(arms.canary, None, UNAVAILABLE)
        return self._score(batch, AnswerSource(servable, self._fallback), context, arms)

    def give_up(self, batch: Batch, servable: Servable, context: Context, death: str, arms: Arms | None = None) -> ScoredBatch:
        """Dead-letter every event of the batch without decoding the events, because two processes died while scoring them.

        `death` describes how the second process died.
        """
        poison = Poison(Reason.CRASHES_SCORER, f"a process {death} twice while it scored only this event")
        rejected = dict.fromkeys(range(len(batch)), poison) | unreadable_rows(batch)
        return self._finish(batch, CanaryResult((ScoredRows(rejected=rejected),)), AnswerSource(servable), context, arms)

    def dead_letter(
        self, batch: Batch, row: int, poison: Poison, servable: Servable, at_ms: int, arm: str = CHAMPION
    ) -> Record | None:
        """Return the dead letter for the event of this row, written at `at_ms` (Unix ms).

        A shadow returns None, because a shadow writes no dead letters.
        """
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

    def read(self, batch: Batch, rows: list[int], now_ms: int) -> ReadBatch:
        """Read the headers of these rows, and find the tombstones to skip. Deadlines before `now_ms` (Unix ms) have passed."""
        skipped = frozenset(batch.tombstones()) if self.settings.input.tombstones == "skip" else frozenset()
        return ReadBatch(batch, read_headers(batch, rows, now_ms), skipped)

    def _score(
        self, batch: Batch, source: AnswerSource, context: Context, arms: Arms | None, *, deadlines: bool = True
    ) -> ScoredBatch:
        rejected = unreadable_rows(batch)
        rows = [row for row in range(len(batch)) if row not in rejected] if rejected else list(range(len(batch)))
        read = self.read(batch, rows, context.clock.now_ms() if deadlines else 0)
        if read.headers.rejected:
            rejected |= read.headers.rejected
            rows = [row for row in rows if row not in rejected]

        def score_rows(rows: list[int], source: AnswerSource) -> tuple[ScoredRows, ...]:
            return self._score_rows(read, rows, source, context)

        if arms is None:
            result = CanaryResult(score_rows(rows, source))
        else:
            result = score_with_canary(self.pipeline, read, rows, source, arms, score_rows, context)
        if rejected:
            result = CanaryResult(
                (*result.scored, ScoredRows(rejected=rejected)), result.fallbacks, result.requested, result.failed
            )
        return self._finish(batch, result, source, context, arms)

    def _score_rows(self, read: ReadBatch, rows: list[int], source: AnswerSource, context: Context) -> tuple[ScoredRows, ...]:
        """Score these rows. A row that cannot be decoded, scored or encoded is rejected.

        ModelBroken and DependencyUnavailable concern the whole batch and are raised.
        """

        def to_poison(error: Exception) -> Poison:
            if not isinstance(error, InferenceFailed):
                return self._internal_errors.poison(error)
            source.servable.loaded.check_control_row()
            return Poison(Reason.INFERENCE_FAILED, str(error))

        if not rows:
            return ()
        halved = score_in_halves(rows, lambda span: self.pipeline.score(read, span, source, context), to_poison, context)
        if halved.interruption is not None:
            raise halved.interruption
        return (*halved.scored, ScoredRows(rejected=halved.rejected)) if halved.rejected else halved.scored

    def _finish(
        self, batch: Batch, result: CanaryResult, source: AnswerSource, context: Context, arms: Arms | None
    ) -> ScoredBatch:
        """Merge the results, and add dead letters for rejected rows. A dead letter has the raw key and value of its event."""
        merged = merge(batch, result.scored, FALLBACK if source.constant else "scored")
        scored = replace(
            merged,
            arms=None if arms is None else arms.canary,
            requested=result.requested,
            failed=result.failed,
            fallbacks=result.fallbacks,
        )
        rejected = {row: poison for scored_rows in result.scored for row, poison in scored_rows.rejected.items()}
        for row, poison in rejected.items():
            at_ms = context.clock.now_ms()
            scored.slots[row] = self.dead_letter(batch, row, poison, source.servable, at_ms, scored.arm(row))
            scored.reasons[poison.reason] += 1
        scored.outcomes["dead"] += len(rejected)
        return scored
