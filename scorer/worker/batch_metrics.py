"""Update metrics, traces and worker progress after each committed batch, and report the lag of partitions once a second."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from publisher.kafka.partitions import Partition
from publisher.runtime.context import now_ms
from publisher.transactions.counters import Counters
from publisher.transactions.session import Record
from scorer.consumer.consumer import EventConsumer
from scorer.consumer.offset_metadata import OffsetMetadata
from scorer.decoding.batch import Batch
from scorer.models.constant_fallback import FALLBACK
from scorer.models.servable import CanaryArm, Servable
from scorer.observability.lag import LagClock
from scorer.observability.liveness import WorkerProgress
from scorer.observability.metrics import Metrics
from scorer.observability.traces import Traces
from scorer.worker.score_batch import ScoredBatch

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PendingBatch:
    """A scored batch whose commit is not yet confirmed and reported in the metrics.

    Attributes:
        batch: the fetched events.
        scored: the records that answer the events: scores and dead letters.
        servable: the champion that was served while the batch was scored.
        metadata: the metadata that is committed with the offsets of the batch.
        limited: what limited the size of the batch, for example "latency" or "size"; see `BatchLimiter.limited_by`.
        began: when scoring of the batch began, in monotonic seconds.
        scoring: the duration of scoring in seconds.
        version_changes: the version change records that are published with the batch.
        producing: the seconds that it took to pass all records to the producer, without waits for commits.
        canary: the canary and its share of the keys while the batch was scored; None without a canary.
    """

    batch: Batch
    scored: ScoredBatch
    servable: Servable
    metadata: OffsetMetadata
    limited: str
    began: float
    scoring: float
    version_changes: Sequence[Record] = ()
    producing: float = 0.0
    canary: CanaryArm | None = None

    @property
    def is_scored_by_model(self) -> bool:
        """Whether a model scored the batch; False if `model.fallback` answered in its place."""
        return self.scored.status != FALLBACK


class BatchMetrics:
    """Updates the metrics, traces and progress of one scorer.

    `waiting` returns the partitions that wait for a table of joined fields, each with the reason as a sentence.
    """

    def __init__(
        self,
        intake: EventConsumer,
        counters: Counters,
        metrics: Metrics,
        progress: WorkerProgress,
        traces: Traces,
        waiting: Callable[[], Mapping[Partition, str]] = dict,
    ) -> None:
        self._intake = intake
        self._counters = counters
        self._metrics = metrics
        self._progress = progress
        self._traces = traces
        self._waiting = waiting
        self._lag = LagClock()
        self._reported_commit_seconds = 0.0
        self._reported_reasons: set[str] = set()  # of dead letters, logged once each
        self._reported_drops: set[str] = set()  # reasons of dropped feature records, logged once each

    def observe(self, pending: PendingBatch) -> None:
        """Update metrics, traces and progress with a committed batch.

        The reported commit time is how long the worker's thread has waited for commits since the previous call.
        """
        metrics = self._metrics
        progress = self._progress
        counters = self._counters
        batch = pending.batch
        scored = pending.scored
        commit = counters.commit_seconds - self._reported_commit_seconds
        self._reported_commit_seconds = counters.commit_seconds
        stages = {**scored.stages, "produce": pending.producing, "commit": max(commit, 0.0)}
        count = len(batch)
        if pending.is_scored_by_model:
            loaded = pending.servable.loaded
            loaded.cost.observe(count, pending.scoring + pending.producing + counters.last_commit_seconds)
            loaded.inference.observe(count, scored.stages.get("infer", 0.0))
        times = batch.times()
        latency = (now_ms() - times.astype(np.float64)) / 1_000
        metrics.latency.observe(latency)
        metrics.wait.observe(np.maximum(latency - (time.monotonic() - pending.began), 0.0))
        metrics.batch(count, pending.limited, scored.outcomes, scored.reasons, stages)
        if scored.dropped_features:
            metrics.dropped_features.add(scored.dropped_features)
            self._log_dropped_features(scored)
        if scored.arms is not None:
            metrics.canary(int(scored.arms.sum()), scored.fallbacks)
        if scored.reasons:
            self._log_new_reasons(scored)
        self._traces.end(batch, stages, scored.outcomes)
        progress.events += count
        progress.batches += 1
        progress.dead_letters += scored.reasons.total()
        progress.last_event_ms |= {place: int(times[at]) for place, at in batch.last.items()}

    def observe_partitions(self) -> None:
        """Report the lag of each partition in records and seconds, and the partitions that are paused or unavailable."""
        intake = self._intake
        progress = self._progress
        progress.lag = lag = intake.lag()
        progress.joined = intake.joined
        unavailable = intake.unavailable_reasons()
        progress.paused = {**self._waiting(), **unavailable}
        level = intake.partitions.level_ms()
        answered = progress.last_event_ms
        level = {partition: max(at, answered.get(partition, 0)) for partition, at in level.items()}
        progress.lag_seconds = seconds = self._lag.seconds(lag, level, now_ms())
        self._metrics.partitions(len(intake.partitions), unavailable, lag, seconds)

    def _log_new_reasons(self, scored: ScoredBatch) -> None:
        new = {reason: n for reason, n in scored.reasons.items() if n > 0 and reason not in self._reported_reasons}
        if new:
            self._reported_reasons |= new.keys()
            counts = ", ".join(f"{reason} ({count})" for reason, count in new.items())
            log.warning(
                "first dead letters with the reason %s; `scorer tail --dead` prints them, later dead letters are only counted",
                counts,
            )

    def _log_dropped_features(self, scored: ScoredBatch) -> None:
        for reason in scored.dropped_features.keys() - self._reported_drops:
            self._reported_drops.add(reason)
            log.warning(
                "first feature record left out of the feature log, with the reason %s; later ones are only counted in "
                "scorer_features_dropped_total",
                reason,
            )
