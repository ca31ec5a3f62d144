"""What is told of each batch once its commit is known to be good, and each second of the partitions: metrics and progress."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from publisher.session.protocol import Record, Session
from scorer.events.batch import Batch
from scorer.intake.consumer import Intake
from scorer.intake.marks import Mark
from scorer.loop.batching import limited_by
from scorer.loop.scoring import Scored
from scorer.observe.lag import LagClock
from scorer.observe.metrics import Metrics
from scorer.observe.progress import Progress
from scorer.observe.traces import Traces
from scorer.servables.servable import Servable
from scorer.settings import Settings


@dataclass(slots=True)
class Published:
    """A batch whose commit has begun. `asked`: the most events that it might have had, and `largest` without regard to
    latency; `began`: when it had been taken (monotonic); then the seconds that it took to score it and to hand its records to
    the producer. `swaps`: the swap records of it."""

    batch: Batch
    scored: Scored
    servable: Servable
    mark: Mark
    asked: int
    largest: int
    began: float
    scoring: float
    swaps: list[Record]
    producing: float = 0.0


class Accounts:
    """For one scorer. `clock` is monotonic seconds, `now_ms` the wall clock."""

    def __init__(
        self,
        settings: Settings,
        session: Session,
        metrics: Metrics,
        progress: Progress,
        traces: Traces,
        *,
        clock: Callable[[], float] = time.monotonic,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._settings = settings
        self._session = session
        self._metrics = metrics
        self._progress = progress
        self._traces = traces
        self._clock = clock
        self._now_ms = now_ms
        self._lag = LagClock()
        self._commit_told = 0.0

    def batch(self, done: Published) -> None:
        """A batch is published. The commits' time includes those since the last one."""
        counters, batch, scored, metrics = self._session.counters, done.batch, done.scored, self._metrics
        commit, self._commit_told = counters.commit_seconds - self._commit_told, counters.commit_seconds
        stages = {**scored.stages, "produce": done.producing, "commit": max(commit, 0.0)}
        count = len(batch)
        done.servable.cost.observe(count, done.scoring + done.producing + counters.last_commit_seconds)
        done.servable.inference.observe(count, scored.stages.get("infer", 0.0))
        latency = (self._now_ms() - np.array(batch.timestamps, np.float64)) / 1_000
        metrics.latency.observe(latency)
        metrics.wait.observe(np.maximum(latency - (self._clock() - done.began), 0.0))
        metrics.batches.inc()
        metrics.batch_events.observe(count)
        limited = limited_by(batch.end, done.asked, done.largest, self._settings.batching.max_events)
        metrics.limited.labels(limited).inc()
        for outcome, number in scored.outcomes.items():
            metrics.events.labels(outcome).inc(number)
        for reason, number in scored.reasons.items():
            metrics.dead.labels(reason).inc(number)
        for stage, spent in stages.items():
            metrics.stage.labels(stage).inc(max(spent, 0.0))
        self._traces.end(batch, stages, scored.outcomes)
        self._progress.events += count
        self._progress.batches += 1
        self._progress.last_event_ms |= {place: batch.timestamps[at] for place, at in batch.last.items()}

    def second(self, intake: Intake) -> None:
        """How far behind each partition is."""
        self._progress.lag = lag = intake.lag()
        self._progress.joined = intake.joined
        self._progress.paused = dict(intake.outside)
        metrics = self._metrics
        metrics.paused.clear()
        for topic, partition in intake.outside:
            metrics.paused.labels(topic, str(partition)).set(1)
        metrics.assigned.set(len(intake.epochs))
        metrics.lag_records.clear()
        metrics.lag_seconds.clear()
        seconds = self._lag.seconds(lag, self._progress.last_event_ms, self._now_ms())
        for (topic, partition), records in lag.items():
            metrics.lag_records.labels(topic, str(partition)).set(records)
            metrics.lag_seconds.labels(topic, str(partition)).set(seconds[topic, partition])
