"""Throughput, lag, latency and batch size over the last ten minutes, one point every two seconds. Pure."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from publisher.kafka.partitions import Partition
from scorer.console.scorer_fold import ScorerFold
from scorer.scores.decode_record import CompleteScoreRecord

STEP_SECONDS = 2.0
POINTS = 300
SAMPLED = 20_000  # largest number of latencies that are kept between two points


@dataclass(frozen=True, slots=True)
class ThroughputPoint:
    """One point of the charts of throughput, lag and latency.

    Attributes:
        at: The time in Unix seconds.
        throughput: The scored events per second of all scorers.
        lag_records: The lag of all partitions in records.
        lag_seconds: The largest lag of a partition in seconds; None if unknown.
        scored_p50: The median time from event to score, in ms; None without a score.
        scored_p99: The 99th percentile of the time from event to score, in ms; None without a score.
        visible_p50: The median time from score to its arrival in the console, in ms; None without a score.
        fill: The average number of events per batch.
        scoring_ms: The estimated time to score a batch of `fill` events, in ms.
    """

    at: float
    throughput: float
    lag_records: int
    lag_seconds: float | None
    scored_p50: float | None
    scored_p99: float | None
    visible_p50: float | None
    fill: float
    scoring_ms: float


@dataclass(slots=True)
class ThroughputFold:
    """The points of the charts. `answered` has the time (Unix ms) of the newest sampled event of each input partition."""

    points: deque[ThroughputPoint] = field(default_factory=lambda: deque(maxlen=POINTS))
    answered: dict[Partition, int] = field(default_factory=dict)
    _until_scored: list[float] = field(default_factory=list)
    _until_visible: list[float] = field(default_factory=list)
    _next: float = 0.0

    def add(self, record: CompleteScoreRecord, now: float, *, live: bool) -> None:
        """Add a score that was read at `now` (Unix seconds).

        `live` is false for a score that was in the topic before the console started; its latency is not used.
        """
        partition = record.source.topic, record.source.partition
        self.answered[partition] = max(record.event_ms, self.answered.get(partition, 0))
        if live and len(self._until_scored) < SAMPLED:
            self._until_scored.append(max(0.0, record.scored_ms - record.event_ms))
            self._until_visible.append(max(0.0, now * 1_000 - record.scored_ms))

    def tick(self, scorers: ScorerFold, now: float) -> bool:
        """Add a point to the charts if STEP_SECONDS have passed since the last point; return whether a point was added."""
        if now < self._next:
            return False
        self._next = now + STEP_SECONDS
        self.points.append(self._point(scorers, now))
        self._until_scored = []
        self._until_visible = []
        return True

    def _point(self, scorers: ScorerFold, now: float) -> ThroughputPoint:
        live = scorers.live(now)
        lags = dict(scorers.lags(now))
        working = [h for h in live if h.fill > 0]
        batches = sum(h.rate / h.fill for h in working)
        fill = sum(h.rate for h in working) / batches if batches else 0.0
        costs = [h.status.cost[0] + h.status.cost[1] * fill for h in working]
        p50, p99 = _percentiles(self._until_scored, (50, 99))
        return ThroughputPoint(
            at=now,
            throughput=sum(h.rate for h in live),
            lag_records=sum(lags.values()),
            lag_seconds=self.behind(lags.items(), now),
            scored_p50=p50,
            scored_p99=p99,
            visible_p50=_percentiles(self._until_visible, (50,))[0],
            fill=fill,
            scoring_ms=1_000 * sum(costs) / len(costs) if costs else 0.0,
        )

    def behind(self, lags: Iterable[tuple[Partition, int]], now: float) -> float | None:
        """Estimate the lag of the scorers in seconds; None if it is unknown. `lags` is the lag of each partition in records."""
        # It is the largest age of the newest sampled event of a partition with a lag, and 0 if no partition has a lag.
        behind = [partition for partition, lag in lags if lag > 0]
        ages = [now - self.answered[partition] / 1_000 for partition in behind if partition in self.answered]
        return None if behind and not ages else max([0.0, *ages])


def _percentiles(values: list[float], points: tuple[int, ...]) -> list[float | None]:
    if not values:
        return [None] * len(points)
    return [round(float(v), 1) for v in np.percentile(np.array(values), points)]
