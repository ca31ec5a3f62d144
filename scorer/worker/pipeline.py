"""The scoring pipeline for some rows of a batch: decode, run the model, encode. After a failure, the rows are halved.

A row is the index of an event in its batch. Each stage takes values and returns a value. Champion, canary, shadow and fallback
use this pipeline with different rows and answer sources. `score_batch.merge` joins the results by row. This module does not
call Kafka.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import numpy as np

from publisher.errors import Aborted, Fatal, Retriable
from publisher.runtime.context import Context
from scorer.dead_letters.reasons import Poison, Reason
from scorer.decoding.batch import Batch, select_rows
from scorer.decoding.record_metadata import BatchMetadata
from scorer.decoding.types import Decoded, Decoder, decode_after_look_ups
from scorer.features.record_builder import FeatureRecordBuilder, FeatureRecords
from scorer.features.record_encoder import AnsweringVersions
from scorer.models.constant_fallback import ConstantFallback
from scorer.models.servable import Servable
from scorer.scores.answer import BatchAnswers
from scorer.settings import Settings
from scorer.worker.encode import Answers, EncodedRows, TargetTopic, encode
from scorer.worker.log_features import LoggedBatch, positions_of
from scorer.worker.read_headers import BatchHeaders, FieldId

INFRASTRUCTURE_ERRORS = (Retriable, Aborted, Fatal)
"""Errors that are not caused by an event. After such an error, the batch is not halved.

DependencyUnavailable is one of them, as a subclass of Fatal.
"""


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """A batch whose headers have been read. `skipped` has the rows of tombstones if `input.tombstones` is "skip"."""

    batch: Batch
    headers: BatchHeaders
    skipped: Set[int] = frozenset()


@dataclass(frozen=True, slots=True)
class AnswerSource:
    """The version that decodes the events, and the source of their answers: the version's model, or `constant` if not None."""

    servable: Servable
    constant: ConstantFallback | None = None


@dataclass(frozen=True, slots=True)
class ScoredRows:
    """The result of scoring some rows.

    Attributes:
        encoded: the records of the rows.
        rejected: the reason of the rejection, for each row that gets no record in `encoded`.
        seconds: the duration of each stage, by the name of the stage.
        features: the feature records of the rows that a model has scored.
    """

    encoded: tuple[EncodedRows, ...] = ()
    rejected: Mapping[int, Poison] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    features: tuple[FeatureRecords, ...] = ()


@dataclass(frozen=True, slots=True)
class HalvedRows:
    """The result of scoring rows that are halved after each failure: the scored, the rejected and the unanswered rows.

    Attributes:
        scored: the results of the spans (lists of rows) that could be scored.
        rejected: the rows that could not be scored, with the reasons.
        interruption: the infrastructure error that ended scoring early; None if all rows were tried.
        unanswered: the rows without a result because of the interruption.
    """

    scored: tuple[ScoredRows, ...]
    rejected: Mapping[int, Poison]
    interruption: Exception | None = None
    unanswered: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The scoring pipeline of one scorer.

    Attributes:
        settings: the settings of the scorer.
        output: the topic of scores.
        look_up_seconds: the longest wait for the schemas of a batch, in seconds.
        features: the builder of feature records; None if there is no feature log.
    """

    settings: Settings
    output: TargetTopic
    look_up_seconds: float
    features: FeatureRecordBuilder | None = None

    def score(self, read: ReadBatch, rows: list[int], source: AnswerSource, context: Context) -> ScoredRows:
        """Decode, score and encode these rows. If a stage fails for one row, the call raises, and no row gets a result."""
        began = time.perf_counter()
        fresh, expired = read.headers.split(rows)
        if read.skipped:
            fresh = [row for row in fresh if row not in read.skipped]
        decoder = source.servable.loaded.decoder
        decoded = self.decode(read.batch, fresh, decoder, context)
        decoded_at = time.perf_counter()
        answers: list[Answers] = []
        rejected = dict(decoded.rejected)
        if decoded.rows:
            answered, not_finite = run(decoded, source, context)
            answers.append(answered)
            rejected |= not_finite
        inferred_at = time.perf_counter()
        if expired:
            answers.append(constant_answers(expired, "expired", self.decode(read.batch, expired, decoder, context)))
        scored_ms = context.clock.now_ms()
        encoded = tuple(self.encode(read, answer, source.servable, scored_ms) for answer in answers)
        for part in encoded:
            rejected |= part.rejected
        features = self.log_features(read, decoded, encoded, source, scored_ms)
        return ScoredRows(encoded, rejected, stage_seconds(began, decoded_at, inferred_at), features)

    def decode(self, batch: Batch, rows: list[int], decoder: Decoder, context: Context) -> Decoded:
        """Decode the events of these rows. The row numbers in the result are indices into the batch.

        Raises:
            LookUpsPending: the schemas of the events were not looked up within `look_up_seconds`.
        """
        values = select_rows(batch.values, rows)
        metadata = BatchMetadata(batch, rows)
        decoded = decode_after_look_ups(decoder, values, metadata, context.check, self.look_up_seconds)
        rejected = {rows[index]: poison for index, poison in decoded.rejected.items()}
        return replace(decoded, rows=list(select_rows(rows, decoded.rows)), rejected=rejected)

    def encode(self, read: ReadBatch, answers: Answers, servable: Servable, scored_ms: int) -> EncodedRows:
        """Encode the records of answered rows. The records name `servable` as the version that answered.

        `scored_ms` is the time of scoring in Unix ms.
        """
        return encode(read.batch, read.headers, answers, servable.encoder, self.settings, self.output, scored_ms)

    def log_features(
        self, read: ReadBatch, decoded: Decoded, encoded: Sequence[EncodedRows], source: AnswerSource, scored_ms: int
    ) -> tuple[FeatureRecords, ...]:
        """Encode the feature records of the rows that the model of `source` has scored.

        Args:
            read: the batch.
            decoded: the tensors with which the model was run.
            encoded: the score records. A row whose score record is too large has no feature record.
            source: the source of the answers. Answers of a constant have no feature records.
            scored_ms: the time of scoring in Unix ms.
        """
        if self.features is None or source.constant is not None or not decoded.rows:
            return ()
        if (encoder := source.servable.features) is None:
            return ()
        logged = LoggedBatch(read.batch, read.headers, decoded)
        rows = encoded[0].rows
        answers = AnsweringVersions.single(source.servable.encoder, len(rows))
        at = positions_of(rows, decoded)
        return (logged.build(self.features, at, encoder, answers, self.settings.region, scored_ms),)


def run(decoded: Decoded, source: AnswerSource, context: Context) -> tuple[Answers, dict[int, Poison]]:
    """Score decoded events with the model or the constant. Return the answers, and the rows that are rejected.

    A row is rejected if its score is not finite. Raises InferenceFailed.
    """
    rows = decoded.rows
    if source.constant is not None:
        return Answers(rows, source.constant.answer(len(rows)), decoded.ids, decoded.carried), {}
    scores = source.servable.loaded.score(decoded.select(0, len(rows)), context.check)
    answer = BatchAnswers("scored", columns=scores)
    finite = scores.finite()
    if finite.all():
        return Answers(rows, answer, decoded.ids, decoded.carried), {}
    rejected: dict[int, Poison] = {}
    for index in np.flatnonzero(~finite).tolist():
        error = f"the model answered {answer.scores[index].decode():.500}, which is not finite"
        rejected[rows[index]] = Poison(Reason.SCORE_NOT_FINITE, error)
    keep = np.flatnonzero(finite).tolist()
    answer = BatchAnswers("scored", [answer.scores[index] for index in keep], [answer.decisions[index] for index in keep])
    carried = None if decoded.carried is None else [decoded.carried[index] for index in keep]
    return Answers([rows[index] for index in keep], answer, [decoded.ids[index] for index in keep], carried), rejected


def constant_answers(rows: list[int], status: str, decoded: Decoded) -> Answers:
    """Answer these rows with a null score and this status.

    Ids and carried fields come from `decoded`. Rows that are not in `decoded` have no id and no carried fields.
    """
    answer = BatchAnswers(status, [b"null"] * len(rows), [None] * len(rows))
    ids = dict(zip(decoded.rows, decoded.ids, strict=True))
    field_ids: list[FieldId] = [ids.get(row) for row in rows]
    if decoded.carried is None:
        return Answers(rows, answer, field_ids)
    carried = dict(zip(decoded.rows, decoded.carried, strict=True))
    return Answers(rows, answer, field_ids, [carried.get(row) for row in rows])


def stage_seconds(began: float, decoded: float, inferred: float) -> dict[str, float]:
    """Return the duration of each stage in seconds. Call this function when encoding has ended.

    `began`, `decoded` and `inferred` are the times when scoring began, decoding ended and inference ended.
    """
    encoded = time.perf_counter()
    return {"decode": decoded - began, "infer": inferred - decoded, "encode": encoded - inferred}


def score_in_halves(
    rows: list[int],
    score: Callable[[list[int]], ScoredRows],
    to_poison: Callable[[Exception], Poison],
    context: Context,
    hopeless: int | None = None,
) -> HalvedRows:
    """Score rows together. If that fails, halve the failing rows repeatedly, until each failing event is in a span of its own.

    Args:
        rows: the rows to score.
        score: scores a span of rows together; it may reject single rows, and raises if it cannot score the span.
        to_poison: returns the reason to reject rows, given the error of `score`. An error that it raises ends the call.
        context: its check is called before each span, and may raise to end the call.
        hopeless: the number of failed events after which failing spans are rejected as a whole, as long as no event has
            succeeded. None to always halve failing spans.
    """
    spans = [rows]
    scored = list[ScoredRows]()
    rejected = dict[int, Poison]()
    any_success = False
    failures = 0
    while spans:
        span = spans.pop()
        context.check()
        try:
            result = score(span)
        except INFRASTRUCTURE_ERRORS as error:
            spans.append(span)
            return HalvedRows(tuple(scored), rejected, error, [row for span in spans for row in span])
        except Exception as error:  # noqa: BLE001 - an event that raises must not stop its partition
            if len(span) > 1 and (hopeless is None or any_success or failures < hopeless):
                middle = len(span) // 2
                spans += [span[middle:], span[:middle]]
            else:
                rejected |= dict.fromkeys(span, to_poison(error))
                failures += len(span)
        else:
            scored.append(result)
            failures += len(result.rejected)
            any_success = any_success or len(result.rejected) < len(span)
    return HalvedRows(tuple(scored), rejected)


def total_seconds(scored: Sequence[ScoredRows]) -> Counter[str]:
    """Return the sum of the durations of each stage over all results, in seconds."""
    seconds: Counter[str] = Counter()
    for part in scored:
        seconds.update(part.seconds)
    return seconds
