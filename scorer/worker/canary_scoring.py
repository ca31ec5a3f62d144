"""Score one batch with two versions, the champion and the candidate. Each version answers its share of the keys.

The champion also answers the events for which the candidate fails. If both versions decode an event to the same tensors, and
the batch meets the conditions in `columnar_records.py`, the batch is decoded once, and its records are encoded as one set of
columns. In all other batches, the events of the champion and of the candidate are decoded and encoded separately.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from publisher.errors import Aborted, Fatal, Retriable
from publisher.runtime.context import Context
from publisher.runtime.dependency_wait import MODEL, DependencyUnavailable
from scorer.backends.base import InferenceFailed
from scorer.crash_isolation.sandbox_process import SandboxProcessDied
from scorer.dead_letters.reasons import Poison, Reason
from scorer.decoding.columnar_batch import ColumnarBatch
from scorer.decoding.types import LookUpsPending
from scorer.features.record_builder import FeatureRecords
from scorer.features.record_encoder import AnsweringVersions
from scorer.models.servable import Servable
from scorer.scores import columnar_records
from scorer.scores.answer import BatchAnswers
from scorer.scores.columnar_records import VersionScores
from scorer.worker.canary_routing import CRASH, UNAVAILABLE, Arms
from scorer.worker.encode import Answers, EncodedRows, encode_columns
from scorer.worker.log_features import LoggedBatch
from scorer.worker.pipeline import AnswerSource, Pipeline, ReadBatch, ScoredRows, score_in_halves, stage_seconds

HOPELESS = 20  # failed events without a success, after which a failing span of the candidate's rows is not halved

ScoreRows = Callable[[list[int], AnswerSource], tuple[ScoredRows, ...]]
"""Answers rows with the champion, or with its constant fallback. Rows for which the champion fails are in `rejected`."""


@dataclass(frozen=True, slots=True)
class CanaryResult:
    """The result of a batch with a canary.

    Attributes:
        scored: the results of all rows, of champion and candidate.
        fallbacks: the number of the canary's events that the champion answered, by reason.
        requested: the number of events that were passed to the candidate.
        failed: how many of the `requested` events the candidate could not answer.
    """

    scored: tuple[ScoredRows, ...]
    fallbacks: Counter[str] = field(default_factory=Counter)
    requested: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """The results of the rows that a candidate answered, and for each remaining row the reason why the candidate failed."""

    scored: tuple[ScoredRows, ...]
    failed: Mapping[int, str]


def score_with_canary(
    pipeline: Pipeline,
    read: ReadBatch,
    rows: list[int],
    champion: AnswerSource,
    arms: Arms,
    score_champion: ScoreRows,
    context: Context,
) -> CanaryResult:
    """Answer each of these rows with the version that `arms` assigns. If the candidate fails, the champion answers.

    `score_champion` answers rows with the champion. Raises DependencyUnavailable if the champion cannot answer.
    """
    if arms.candidate is not None:
        together = _score_together(pipeline, read, rows, champion.servable, arms.candidate, arms, context)
        if together is not None:
            return CanaryResult((together,), requested=int(np.count_nonzero(arms.canary)))
    canary_rows = [row for row in rows if arms.canary[row]]
    result = CandidateResult((), dict.fromkeys(canary_rows, arms.reason))
    if arms.candidate is not None:
        result = score_with_candidate(pipeline, read, canary_rows, arms.candidate, context)
    scored = result.scored + score_champion([row for row in rows if not arms.canary[row]], champion)
    failed = result.failed
    for reason in sorted(set(failed.values())):
        substitute = AnswerSource(champion.servable.in_place_of_canary(reason), champion.constant)
        scored += score_champion([row for row in canary_rows if failed.get(row) == reason], substitute)
    rejected = {row for part in scored for row in part.rejected}
    answered = (reason for row, reason in failed.items() if row not in rejected | read.headers.expired)
    fallbacks = Counter(answered)
    if arms.candidate is None:
        return CanaryResult(scored, fallbacks)
    requested = int(np.count_nonzero(arms.canary)) - fallbacks[CRASH]
    return CanaryResult(scored, fallbacks, requested, fallbacks.total() - fallbacks[CRASH])


def score_with_candidate(
    pipeline: Pipeline, read: ReadBatch, rows: list[int], candidate: Servable, context: Context, *, alone: bool = False
) -> CandidateResult:
    """Answer these rows with a candidate. For each row that the candidate cannot answer, return the reason.

    Args:
        pipeline: the stages of scoring.
        read: the batch, whose headers have been read.
        rows: the rows to answer.
        candidate: the version that answers.
        context: its check is called before each run of the pipeline, and may raise to end the call.
        alone: whether no other version answers the failed rows. If so, each failed inference is followed by a check whether
            the model is broken. The check scores the control row, an event that the model scored when it was loaded.

    Raises:
        ModelBroken: `alone` is set, and the candidate's model no longer answers its control row.
    """

    def to_poison(error: Exception) -> Poison:
        if not isinstance(error, InferenceFailed):
            return Poison(Reason.INTERNAL_ERROR, str(error))
        if alone:
            candidate.loaded.check_control_row()
        return Poison(Reason.INFERENCE_FAILED, str(error))

    source = AnswerSource(candidate)
    halved = score_in_halves(
        rows, lambda span: pipeline.score(read, span, source, context), to_poison, context, hopeless=HOPELESS
    )
    error = halved.interruption
    expected = isinstance(error, DependencyUnavailable | Retriable) and not isinstance(
        error, SandboxProcessDied | LookUpsPending
    )
    if error is not None and not expected:
        raise error
    rejected = dict(halved.rejected)
    scored = []
    for part in halved.scored:
        rejected |= part.rejected
        scored.append(replace(part, rejected={}))
    failed = {row: str(poison.reason) for row, poison in rejected.items()}
    if error is not None:
        loading = isinstance(error, DependencyUnavailable) and error.dependency == MODEL  # after a death of the process
        failed |= dict.fromkeys(halved.unanswered, CRASH if loading else UNAVAILABLE)
    return CandidateResult(tuple(scored), failed)


def _score_together(
    pipeline: Pipeline,
    read: ReadBatch,
    rows: list[int],
    champion: Servable,
    candidate: Servable,
    arms: Arms,
    context: Context,
) -> ScoredRows | None:
    """Answer all rows of a batch: decode once, run both versions, and encode the records as one set of columns.

    Returns:
        The records; None if the batch does not meet the conditions for columns (see `columnar_records.py`), or if a version
        fails. In these cases the caller must score the events of champion and candidate separately.
    """
    batch = read.batch
    columns = isinstance(batch, ColumnarBatch) and len(rows) >= columnar_records.MIN_EVENTS and batch.carried is None
    is_plain = champion.encoder.plain and len(rows) == len(batch) and not pipeline.settings.output.headers
    if not (columns and is_plain) or arms.canary.all() or not arms.alike or read.skipped or read.headers.expired:
        return None
    began = time.perf_counter()
    try:
        decoded = pipeline.decode(batch, rows, champion.loaded.decoder, context)
        if len(decoded.rows) < len(rows):
            return None
        decoded_at = time.perf_counter()
        parts = []
        for servable, at in ((champion, np.flatnonzero(~arms.canary)), (candidate, np.flatnonzero(arms.canary))):
            context.check()
            tensors = {name: tensor.take(at, axis=0) for name, tensor in decoded.tensors.items()}
            scores = servable.loaded.score(tensors, context.check)
            if not scores.finite().all():
                return None
            parts.append(VersionScores(at, scores, servable.encoder))
        inferred_at = time.perf_counter()
        answers = Answers(rows, BatchAnswers("scored"), decoded.ids, decoded.carried)
        at_ms = context.clock.now_ms()
        records = encode_columns(batch, read.headers, parts, answers, pipeline.settings, pipeline.output, at_ms)
    except LookUpsPending:
        raise
    except (Aborted, Fatal, Retriable):
        return None  # the same error is raised again for the arm that causes it
    except Exception:  # noqa: BLE001 - scoring arm by arm finds the failing event
        return None
    if records is None:
        return None
    features: tuple[FeatureRecords, ...] = ()
    if pipeline.features is not None and champion.features is not None:
        versions = AnsweringVersions([champion.encoder, candidate.encoder], arms.canary.astype(np.int32))
        logged = LoggedBatch(batch, read.headers, decoded)
        region = pipeline.settings.region
        features = (logged.build(pipeline.features, None, champion.features, versions, region, at_ms),)
    seconds = stage_seconds(began, decoded_at, inferred_at)
    return ScoredRows((EncodedRows(rows, records, "scored"),), {}, seconds, features)
