"""The Prometheus metrics of a relay, computed from its `RelayState` at each scrape."""

import time
from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from publisher.relay.relay_state import LaneState, RelayState

COUNTERS: tuple[tuple[str, str, Callable[[LaneState], float]], ...] = (
    ("publisher_records", "Records copied to the destination.", lambda lane: lane.copy_counts.copied),
    ("publisher_bytes", "Bytes of the values of records that were read from the source.", lambda lane: lane.bytes),
    (
        "publisher_records_filtered",
        "Records that were not copied because the filter excludes them.",
        lambda lane: lane.copy_counts.filtered,
    ),
    (
        "publisher_records_looped",
        "Records that were not copied because they come from the destination.",
        lambda lane: lane.copy_counts.looped,
    ),
    (
        "publisher_records_derived",
        "Copied records that a program had produced with the headers of a copy; the relay replaced their origin.",
        lambda lane: lane.copy_counts.derived,
    ),
    ("publisher_records_refused", "Records produced to the refusal topic.", lambda lane: lane.copy_counts.refused),
    ("publisher_transactions", "Transactions committed.", lambda lane: lane.counters.commits),
    (
        "publisher_aborts",
        "Transactions that were not committed because of an error.",
        lambda lane: lane.counters.aborts,
    ),
    ("publisher_producer_rotations", "Producers replaced because a commit was slow.", lambda lane: lane.counters.rotations),
    ("publisher_commit_seconds", "Time that the lane has waited for commits.", lambda lane: lane.counters.commit_seconds),
)


class RelayMetrics(Collector):
    """Collects the metrics for a CollectorRegistry. `source` and `destination` are the names of the regions."""

    def __init__(self, state: RelayState, source: str, destination: str) -> None:
        self._state = state
        self._labels = {"name": state.name, "source": source, "destination": destination}

    def collect(self) -> Iterable[Metric]:
        """Yield the current values."""
        yield InfoMetricFamily("publisher_relay", "The relay, its source and its destination.", self._labels)
        for name, documentation, value in COUNTERS:
            family = CounterMetricFamily(name, documentation, labels=["lane"])
            for lane in self._state.lanes:
                family.add_metric([str(lane.number)], value(lane))
            yield family
        yield from self._lags()
        stopped = GaugeMetricFamily(
            "publisher_partition_stopped",
            "1 for a partition that is not copied, because its next record cannot be copied.",
            labels=["partition", "error"],
        )
        for (topic, partition), reason in sorted(item for lane in self._state.lanes for item in list(lane.stopped.items())):
            stopped.add_metric([f"{topic}[{partition}]", reason], 1)
        yield stopped
        unreadable = "Keys of the checkpoint topic whose newest record is unreadable and was skipped."
        yield GaugeMetricFamily("publisher_unreadable_checkpoints", unreadable, self._state.unreadable)
        restarts = "Restarts of the relay within its process after a failure."
        yield CounterMetricFamily("publisher_restarts", restarts, self._state.restarts)
        failures = CounterMetricFamily("publisher_troubles", "Failures that interrupted copying, by kind.", labels=["family"])
        for family_name, count in sorted(self._state.failures.items()):
            failures.add_metric([family_name], count)
        yield failures
        last = GaugeMetricFamily(
            "publisher_last_trouble_timestamp_seconds",
            "Time and error of the last failure that interrupted copying.",
            labels=["family", "error"],
        )
        if self._state.last_failure is not None:
            failure = self._state.last_failure
            last.add_metric([failure.family, failure.text], failure.at_ms / 1_000)
        yield last

    def _lags(self) -> Iterable[Metric]:
        now = time.monotonic()
        now_ms = time.time_ns() // 1_000_000
        silence = self._state.silence(now)
        records = GaugeMetricFamily(
            "publisher_lag_records",
            "Source offsets that are not copied yet, as of the last answer of the source.",
            labels=["lane"],
        )
        seconds = GaugeMetricFamily(
            "publisher_lag_seconds",
            "How long the lane has been behind the source: the age of its last copied record, or the time for which it has had "
            "a backlog, whichever is shorter; at least the time since the source last answered.",
            labels=["lane"],
        )
        ages = GaugeMetricFamily(
            "publisher_checkpoint_age_seconds", "Time since the lane last committed its positions.", labels=["lane"]
        )
        for lane in self._state.lanes:
            label = [str(lane.number)]
            records.add_metric(label, lane.lag_records())
            seconds.add_metric(label, max(lane.lag_seconds(now_ms), silence))
            ages.add_metric(label, now - lane.checkpoint_at)
        yield from (records, seconds, ages)
        yield GaugeMetricFamily("publisher_source_silence_seconds", "Time since the source last answered.", silence)
        retention = GaugeMetricFamily(
            "publisher_source_retention_seconds",
            "How long the source retains records, if it deletes them by age.",
            labels=["topic"],
        )
        for topic, topic_seconds in sorted(self._state.retention.items()):
            retention.add_metric([topic], topic_seconds)
        yield retention
        yield GaugeMetricFamily("publisher_copying", "1 while the relay copies records.", int(self._state.copying))
