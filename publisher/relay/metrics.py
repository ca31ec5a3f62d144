"""Prometheus metrics of a relay, read from its plain values when they are asked for; nothing is counted twice."""

import time
from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from publisher.relay.status import LaneState, RelayState

COUNTERS: tuple[tuple[str, str, Callable[[LaneState], float]], ...] = (
    ("publisher_records", "Records copied.", lambda lane: lane.tally.copied),
    ("publisher_bytes", "Bytes of the values read.", lambda lane: lane.bytes),
    ("publisher_records_filtered", "Records that the filter held back.", lambda lane: lane.tally.filtered),
    (
        "publisher_records_looped",
        "Records not copied because they come from the destination.",
        lambda lane: lane.tally.looped,
    ),
    (
        "publisher_records_derived",
        "Records copied that carried the origin of another record and got their own.",
        lambda lane: lane.tally.derived,
    ),
    ("publisher_records_refused", "Records that went to the refusal topic.", lambda lane: lane.tally.refused),
    ("publisher_transactions", "Transactions committed.", lambda lane: lane.counters.commits),
    (
        "publisher_aborts",
        "Transactions that were begun and not committed because of an error.",
        lambda lane: lane.counters.aborts,
    ),
    ("publisher_producer_rotations", "Producers replaced because a commit was slow.", lambda lane: lane.counters.rotations),
    ("publisher_commit_seconds", "Time that the lane waited for commits.", lambda lane: lane.counters.commit_seconds),
)


class RelayMetrics(Collector):
    """Register it with a CollectorRegistry. `source` and `destination` are the regions."""

    def __init__(self, state: RelayState, source: str, destination: str) -> None:
        self._state = state
        self._labels = {"name": state.name, "source": source, "destination": destination}

    def collect(self) -> Iterable[Metric]:
        yield InfoMetricFamily("publisher_relay", "Whose metrics these are, and from where to where.", self._labels)
        for name, documentation, value in COUNTERS:
            family = CounterMetricFamily(name, documentation, labels=["lane"])
            for lane in self._state.lanes:
                family.add_metric([str(lane.number)], value(lane))
            yield family
        yield from self._lags()
        stopped = GaugeMetricFamily(
            "publisher_partition_stopped",
            "1 for a partition at whose next record the relay stopped.",
            labels=["partition", "error"],
        )
        for (topic, partition), why in sorted(item for lane in self._state.lanes for item in list(lane.stopped.items())):
            stopped.add_metric([f"{topic}[{partition}]", why], 1)
        yield stopped
        skipped = "Keys of the checkpoint topic whose newest record is unreadable and was skipped."
        yield GaugeMetricFamily("publisher_unreadable_checkpoints", skipped, self._state.unreadable)
        yield CounterMetricFamily("publisher_restarts", "Times the relay began anew after trouble.", self._state.restarts)
        troubles = CounterMetricFamily("publisher_troubles", "What ended a life of the relay.", labels=["family"])
        for family_name, count in sorted(self._state.troubles.items()):
            troubles.add_metric([family_name], count)
        yield troubles
        last = GaugeMetricFamily(
            "publisher_last_trouble_timestamp_seconds", "When, and what, the last trouble was.", labels=["family", "error"]
        )
        if self._state.trouble is not None:
            trouble = self._state.trouble
            last.add_metric([trouble.family, trouble.text], trouble.at_ms / 1_000)
        yield last

    def _lags(self) -> Iterable[Metric]:
        now, now_ms = time.monotonic(), time.time_ns() // 1_000_000
        silence = self._state.silence(now)
        records = GaugeMetricFamily("publisher_lag_records", "Source offsets not copied, as last heard.", labels=["lane"])
        seconds = GaugeMetricFamily(
            "publisher_lag_seconds",
            "While more wait: since the last copied record, or since nothing waited. Else of the last answer.",
            labels=["lane"],
        )
        ages = GaugeMetricFamily("publisher_checkpoint_age_seconds", "Since the last commit.", labels=["lane"])
        for lane in self._state.lanes:
            label = [str(lane.number)]
            records.add_metric(label, lane.lag_records())
            seconds.add_metric(label, max(lane.lag_seconds(now_ms), silence))
            ages.add_metric(label, now - lane.checkpoint_at)
        yield from (records, seconds, ages)
        yield GaugeMetricFamily("publisher_source_silence_seconds", "Time without an answer of the source.", silence)
        retention = GaugeMetricFamily(
            "publisher_source_retention_seconds", "How long the source keeps records, where it tells.", labels=["topic"]
        )
        for topic, kept in sorted(self._state.retention.items()):
            retention.add_metric([topic], kept)
        yield retention
        yield GaugeMetricFamily("publisher_copying", "1 while records are copied.", int(self._state.copying))
