"""What is told of each batch once its commit is known to be good, and each second of the partitions: metrics and progress."""

import logging
import time
from dataclasses import dataclass, field

import numpy as np

from publisher.runtime.context import now_ms
from publisher.transactions.protocol import Record
from scorer.consumer.offset_metadata import OffsetMetadata
from scorer.decoding.batch import Batch
from scorer.models.constant_fallback import FALLBACK
from scorer.models.servable import CanaryArm, Servable
from scorer.observability.lag import LagClock
from scorer.worker.context import Collaborators
from scorer.worker.score_batch import ScoredBatch

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Published:
    """A batch that is scored, and whose commit may have begun. `limited` says what kept it from being larger. `began` is when
    it had been taken (monotonic seconds), `scoring` and `producing` are the seconds that it took to score it and to hand its
    records to the producer. `servable` is the champion. `swaps` are its swap records."""

    batch: Batch
    scored: ScoredBatch
    servable: Servable
    mark: OffsetMetadata
    limited: str
    began: float
    scoring: float
    swaps: list[Record] = field(default_factory=list)
    producing: float = 0.0
    canary: CanaryArm | None = None

    @property
    def by_a_model(self) -> bool:
        """Whether a model was asked."""
        return self.scored.status != FALLBACK


class Metering:
    """For one scorer."""

    def __init__(self, collaborators: Collaborators) -> None:
        self._with = collaborators
        self._lag = LagClock()
        self._commit_told = 0.0
        self._reasons: set[str] = set()  # of dead letters, logged once each

    def batch(self, done: Published) -> None:
        """A batch is published. The commits' time includes those since the last one."""
        metrics, progress = self._with.metrics, self._with.progress
        counters, batch, scored = self._with.session.counters, done.batch, done.scored
        commit, self._commit_told = counters.commit_seconds - self._commit_told, counters.commit_seconds
        stages = {**scored.stages, "produce": done.producing, "commit": max(commit, 0.0)}
        count = len(batch)
        if done.by_a_model:
            done.servable.loaded.cost.observe(count, done.scoring + done.producing + counters.last_commit_seconds)
            done.servable.loaded.inference.observe(count, scored.stages.get("infer", 0.0))
        times = batch.times()
        latency = (now_ms() - times.astype(np.float64)) / 1_000
        metrics.latency.observe(latency)
        metrics.wait.observe(np.maximum(latency - (time.monotonic() - done.began), 0.0))
        metrics.batch(count, done.limited, scored.outcomes, scored.reasons, stages)
        if scored.arms is not None:
            metrics.canary(int(scored.arms.sum()), scored.fallbacks)
        if new := {reason: count for reason, count in scored.reasons.items() if count > 0 and reason not in self._reasons}:
            self._reasons |= new.keys()
            told = ", ".join(f"{reason} ({count})" for reason, count in new.items())
            log.warning("the first dead letters for %s; `scorer tail --dead` shows why, later ones are only counted", told)
        self._with.traces.end(batch, stages, scored.outcomes)
        progress.events += count
        progress.batches += 1
        progress.dead_letters += scored.reasons.total()
        progress.last_event_ms |= {place: int(times[at]) for place, at in batch.last.items()}

    def second(self) -> None:
        """How far behind each partition is, and which cannot be read."""
        intake, progress = self._with.intake, self._with.progress
        progress.lag = lag = intake.lag()
        progress.joined = intake.joined
        progress.paused = intake.unreadable.why()
        level, answered = intake.partitions.level_ms(), progress.last_event_ms
        level = {partition: max(at, answered.get(partition, 0)) for partition, at in level.items()}
        progress.lag_seconds = seconds = self._lag.seconds(lag, level, now_ms())
        self._with.metrics.partitions(len(intake.partitions), progress.paused, lag, seconds)
