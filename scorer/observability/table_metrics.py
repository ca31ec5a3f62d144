"""The metrics of the tables of a worker. They are computed when Prometheus scrapes them, so that a batch costs nothing."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector


class TablePartition(Protocol):
    """The lag of one partition of a table in this worker."""

    @property
    def table(self) -> str: ...

    @property
    def lag_seconds(self) -> float: ...


class ReportedTables(Protocol):
    """The tables of a worker, as their metrics need them. Any thread may read them.

    Attributes:
        lookups: the number of look-ups, by table and result.
        waiting_partitions: the number of assigned partitions that wait for a table.
    """

    @property
    def lookups(self) -> Mapping[str, Mapping[str, int]]: ...

    @property
    def waiting_partitions(self) -> int: ...

    def status(self) -> Sequence[TablePartition]:
        """Return the state of each partition of each table that this worker reads."""

    def sizes(self) -> Mapping[str, tuple[int, int]]:
        """Return the number of rows and their memory in bytes, by table."""

    def unreadable(self) -> Mapping[str, Mapping[str, int]]:
        """Return the number of records that could not be read, by table and reason."""


class TableMetrics(Collector):
    """The collector of the metrics of a worker's tables."""

    def __init__(self, tables: ReportedTables) -> None:
        self._tables = tables

    def collect(self) -> Iterable[Metric]:
        """Yield the current values."""
        sizes = self._tables.sizes()
        lags: dict[str, float] = {}
        for partition in self._tables.status():
            lags[partition.table] = max(lags.get(partition.table, 0.0), partition.lag_seconds)
        counts = {name: rows for name, (rows, _) in sizes.items()}
        memory = {name: size for name, (_, size) in sizes.items()}
        yield _by_table("scorer_table_rows", "Rows of a table that this worker holds.", counts)
        yield _by_table("scorer_table_bytes", "Memory of the rows of a table in this worker.", memory)
        lag_help = (
            "Time since the position in the table's topic last equalled its end, in the partition that is furthest behind."
        )
        yield _by_table("scorer_table_lag_seconds", lag_help, lags)
        waiting = "Assigned partitions that are paused until their tables are restored, or no longer behind."
        yield GaugeMetricFamily("scorer_table_waiting_partitions", waiting, self._tables.waiting_partitions)
        unreadable_help = "Records of a table without a key, and rows that could not be decoded, by reason."
        yield _by_table_and("reason", "scorer_table_unreadable_rows", unreadable_help, self._tables.unreadable())
        lookup_help = "Look-ups of events by result: row (a row has the key), no-row, or no-key (the event has no key)."
        yield _by_table_and("result", "scorer_table_lookups", lookup_help, self._tables.lookups)


def _by_table(name: str, documentation: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, documentation, labels=["table"])
    for table, value in values.items():
        family.add_metric([table], value)
    return family


def _by_table_and(label: str, name: str, documentation: str, values: Mapping[str, Mapping[str, int]]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, documentation, labels=["table", label])
    for table, counts in values.items():
        for each, count in dict(counts).items():
            family.add_metric([table, each], count)
    return family
