"""The Prometheus metrics of a scorer: in base units, with bounded labels. Metrics are updated per batch, never per event."""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from publisher.kafka.partitions import Partition
from publisher.kafka.skipped_records import SkippedRecords
from publisher.runtime.dependency_wait import KINDS, Outages
from publisher.runtime.process_metrics import installed_version, register_process_metrics
from publisher.transactions.counters import Counters
from scorer.features.record_builder import DROP_REASONS
from scorer.models.load_guard import OUTCOMES
from scorer.native.librdkafka import librdkafka_plugin
from scorer.native.load import native_library
from scorer.observability.table_metrics import TableMetrics
from scorer.settings.model import ModelSettings

log = logging.getLogger(__name__)

LATENCY_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
SIZE_BUCKETS = tuple(4**k for k in range(9))


class BatchHistogram(Collector):
    """A histogram with LATENCY_BUCKETS that accepts a batch of observations in one call."""

    def __init__(self, name: str, documentation: str, registry: CollectorRegistry) -> None:
        self._name = name
        self._documentation = documentation
        self._edges = np.array(LATENCY_BUCKETS)
        self._counts = np.zeros(len(LATENCY_BUCKETS) + 1, np.int64)
        self._sum = 0.0
        registry.register(self)

    def observe(self, values: "np.typing.NDArray[np.float64]") -> None:
        """Add (B,) observations in the unit of the metric."""
        self._counts += np.bincount(np.searchsorted(self._edges, values), minlength=len(self._counts))
        self._sum += float(values.sum())

    def collect(self) -> Iterable[Metric]:
        cumulative = np.cumsum(self._counts).tolist()
        labels = [*(str(edge) for edge in self._edges.tolist()), "+Inf"]
        family = HistogramMetricFamily(self._name, self._documentation)
        family.add_metric([], list(zip(labels, cumulative, strict=True)), self._sum)
        yield family


class LabelledCounter(Collector):
    """A counter with one label. An update takes a tenth of the time of a labelled child of `Counter`."""

    def __init__(self, name: str, documentation: str, label: str, registry: CollectorRegistry) -> None:
        self._named = name, documentation, label
        self._totals: defaultdict[str, float] = defaultdict(float)
        registry.register(self)

    def add(self, counts: Mapping[str, float]) -> None:
        """Increase the counter by the amounts in `counts`, one per label value. Negative amounts are ignored."""
        for value, count in counts.items():
            self._totals[value] += max(count, 0.0)

    def collect(self) -> Iterable[Metric]:
        name, documentation, label = self._named
        family = CounterMetricFamily(name, documentation, labels=[label])
        for value, total in self._totals.copy().items():
            family.add_metric([value], total)
        yield family


class SessionCounters(Collector):
    """Exports the counts of commits, aborts, replaced producers and fenced producers as metrics."""

    def __init__(self, counters: Counters) -> None:
        self.counters = counters

    def collect(self) -> Iterable[Metric]:
        now = self.counters
        for name, documentation, value in (
            ("scorer_commits", "Committed transactions, or confirmed checkpoints with at-least-once delivery.", now.commits),
            ("scorer_aborts", "Aborted transactions, or unconfirmed checkpoints; their events were read again.", now.aborts),
            ("scorer_producer_rotations", "Producers replaced because a commit was slow.", now.rotations),
            ("scorer_fenced", "How often another producer fenced a transactional id of this scorer.", now.fenced),
            ("scorer_commit_seconds", "Time for which the main loop waited for commits.", now.commit_seconds),
        ):
            yield CounterMetricFamily(name, documentation, value=value)
        age = 0.0 if (since := now.open_since) is None else max(0.0, time.monotonic() - since)
        yield GaugeMetricFamily(
            "scorer_open_transaction_seconds",
            "How long a transaction has been open, or the scorer has waited for transactions of other owners.",
            age,
        )


class UnreadableRecordsCounter(Collector):
    """Exports the number of skipped, unreadable records by topic as a counter."""

    def __init__(self, records: SkippedRecords) -> None:
        self.records = records

    def collect(self) -> Iterable[Metric]:
        documentation = "Unreadable records, and unreadable commits of the group, that were skipped."
        family = CounterMetricFamily("scorer_unreadable_records", documentation, labels=["topic"])
        for topic, count in sorted(self.records.counts.copy().items()):
            family.add_metric([topic], count)
        yield family


class Metrics:
    """All metrics of one scorer, in a registry of their own.

    Args:
        counters: the counts of commits, aborts, replaced producers and fenced producers.
        model: the settings of the model. A metric exports the name of its backend.
        skipped: the counter of unreadable records.
    """

    def __init__(self, counters: Counters, model: ModelSettings, skipped: SkippedRecords | None = None) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(UnreadableRecordsCounter(skipped or SkippedRecords(log)))
        self.session = SessionCounters(counters)
        self.outages = Outages()
        self.registry.register(self.session)
        self.tables = TableMetrics()
        self.registry.register(self.tables)
        at = self.registry
        of_partition = ["topic", "partition"]
        self.latency = BatchHistogram("scorer_event_latency_seconds", "Time from the timestamp of the event to its answer.", at)
        wait = "Time from the timestamp of the event to the start of its batch, which is the latency before the first stage."
        self.wait = BatchHistogram("scorer_event_wait_seconds", wait, at)
        self.events = LabelledCounter("scorer_events", "Events that this scorer answered, by outcome.", "outcome", at)
        self.batches = Counter("scorer_batches", "Batches whose answers were published.", registry=at)
        self.batch_events = Histogram("scorer_batch_events", "Events in a batch.", buckets=SIZE_BUCKETS, registry=at)
        limited = "Batches by the reason that limited their size."
        self.limited = LabelledCounter("scorer_batches_limited", limited, "by", at)
        self.stage = LabelledCounter("scorer_stage_seconds", "Time spent on batches, by stage.", "stage", at)
        self.dead_letters = LabelledCounter("scorer_dead_letters", "Events that were dead-lettered, by reason.", "reason", at)
        dropped = "Feature records left out of the feature log, by reason. Their events were scored."
        self.dropped_features = LabelledCounter("scorer_features_dropped", dropped, "reason", at)
        self.dropped_features.add(dict.fromkeys(DROP_REASONS, 0))
        self.swaps = Counter("scorer_swaps", "Changes of the served version between two batches.", registry=at)
        canaried = (
            "Events in the canary's share of the keys, by the reason why the champion answered them instead of the candidate; "
            "none: the candidate answered."
        )
        self.canaried = Counter("scorer_canary_events", canaried, ["fallback"], registry=at)
        skipped_events = "Events that a shadow skipped because its lag exceeded shadow.max_lag_seconds."
        self.skipped = Counter("scorer_shadow_skipped_events", skipped_events, registry=at)
        self.refused = Counter("scorer_versions_refused", "Model versions that this scorer refused to load.", registry=at)
        channel_refused = "1 while this scorer refuses the version or the move of the channel and serves an earlier version."
        self.channel_refused = Gauge("scorer_channel_refused", channel_refused, registry=at)
        tried = "Model versions that were loaded in a trial process first, by outcome."
        self.trials = Counter("scorer_version_trials", tried, ["outcome"], registry=at)
        for outcome in OUTCOMES:
            self.trials.labels(outcome)
        self._load_seconds = Gauge(
            "scorer_version_load_seconds",
            "How long the current load of a version has taken, including its trial; 0 while no load is in progress.",
            registry=at,
        )
        self.fence_timeouts = Counter(
            "scorer_revision_fence_timeouts",
            "Waits of partitions for a newer revision of the channel that this scorer did not serve in time.",
            registry=at,
        )
        younger = (
            "1 while the revision of the channel is lower than the revision that last scored an assigned partition: "
            "the channel was recreated or restored."
        )
        self.channel_younger = Gauge("scorer_channel_younger", younger, registry=at)
        self.lag_records = Gauge(
            "scorer_lag_records", "Records of the partition that are not answered yet.", of_partition, registry=at
        )
        lag = "How long the partition has had unanswered records; 0 while all records are answered."
        self.lag_seconds = Gauge("scorer_lag_seconds", lag, of_partition, registry=at)
        retention = "How long the input topic retains events, if it deletes them by age, as of the start of the scorer."
        self._input_retention = Gauge("scorer_input_retention_seconds", retention, ["topic"], registry=at)
        self.model = Gauge(
            "scorer_model_info", "The served versions by role.", ["model", "version", "digest", "role"], registry=at
        )
        self.revision = Gauge("scorer_model_revision", "The revision of the channel that this scorer serves.", registry=at)
        paused = "1 while this scorer does not read the assigned partition."
        self.paused = Gauge("scorer_partition_paused", paused, of_partition, registry=at)
        unavailable = Gauge("scorer_away", "1 while the dependency is unavailable.", ["what"], registry=at)
        for what in KINDS:
            unavailable.labels(what).set_function(partial(self.outages.is_unavailable, what))
        foreign = "Members of the consumer group that are not scorers."
        self.foreign_members = Gauge("scorer_foreign_members", foreign, registry=at)
        self.assigned = Gauge("scorer_assigned_partitions", "Partitions assigned to this scorer.", registry=at)
        device = "The backend, and the devices on which the served versions run; remote: on the servers of the backend."
        self._device = Gauge("scorer_device_info", device, ["backend", "device"], registry=at)
        self._backend = model.backend
        self._set_runtime_info()

    def _set_runtime_info(self) -> None:
        """Set the metrics that do not change: the build, the process and the use of native code."""
        at = self.registry
        register_process_metrics(at, "scorer", onnxruntime=installed_version("onnxruntime", "onnxruntime-gpu"))
        native = "How JSON is decoded (scanner or msgspec) and events are fetched (columns or messages)."
        native_info = Gauge("scorer_native_info", native, ["json", "kafka"], registry=at)
        native_info.labels(
            "scanner" if native_library().library else "msgspec", "columns" if librdkafka_plugin() else "messages"
        ).set(1)

    def set_input_retentions(self, seconds: Mapping[str, float]) -> None:
        """Set the retention of each input topic that deletes events by age, in seconds."""
        for topic, topic_seconds in seconds.items():
            self._input_retention.labels(topic).set(topic_seconds)

    def export_load_age(self, age_seconds: Callable[[], float]) -> None:
        """Export the result of `age_seconds`: the seconds since the current load of a version began."""
        self._load_seconds.set_function(age_seconds)

    def batch(
        self, events: int, limited: str, outcomes: Mapping[str, int], reasons: Mapping[str, int], stages: Mapping[str, float]
    ) -> None:
        """Count a published batch: what limited its size, events by outcome, dead letters by reason, and seconds by stage.

        A stage is a processing step of the batch, such as decoding.
        """
        self.batches.inc()
        self.batch_events.observe(events)
        self.limited.add({limited: 1})
        self.events.add(outcomes)
        self.dead_letters.add(reasons)
        self.stage.add(stages)

    def canary(self, events: int, fallbacks: Mapping[str, int]) -> None:
        """Count the canary's events in a batch.

        `fallbacks` has the number of these events that the champion answered instead, by reason.
        """
        self.canaried.labels("none").inc(events - sum(fallbacks.values()))
        for reason, count in fallbacks.items():
            self.canaried.labels(reason).inc(count)

    def partitions(
        self,
        assigned: int,
        paused: Iterable[Partition],
        lag_records: Mapping[Partition, int],
        lag_seconds: Mapping[Partition, float],
    ) -> None:
        """Replace the number of assigned partitions, the set of paused partitions, and the lags by partition."""
        self.assigned.set(assigned)
        for gauge, values in (
            (self.paused, dict.fromkeys(paused, 1.0)),
            (self.lag_records, lag_records),
            (self.lag_seconds, {partition: lag_seconds[partition] for partition in lag_records}),
        ):
            gauge.clear()
            for (topic, partition), value in values.items():
                gauge.labels(topic, str(partition)).set(value)

    def serving(self, origins: Iterable[Mapping[str, str]], revision: int, devices: Iterable[str]) -> None:
        """Export the served versions instead of the previous ones.

        Args:
            origins: the provenance of each served version; its key `role` is champion, canary or shadow.
            revision: the served revision of the channel.
            devices: the devices on which the versions run; see `Model.device`.
        """
        self.model.clear()
        for origin in origins:
            self.model.labels(*(origin[name] for name in ("model", "version", "digest", "role"))).set(1)
        self.revision.set(revision)
        self._device.clear()
        for device in devices:
            self._device.labels(self._backend, device).set(1)
