"""The Prometheus metrics of the tables of joined fields, which are read from the tables when they are scraped."""

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from scorer.tables.tables import Tables

TABLE = ["table"]


class TableMetrics(Collector):
    """Exports the rows, memory, lag and look-ups of tables.

    Attributes:
        tables: the tables; None without tables, and before they are opened.
    """

    def __init__(self) -> None:
        self.tables: Tables | None = None

    def collect(self) -> Iterable[Metric]:
        """Return the metrics by table."""
        rows = GaugeMetricFamily("scorer_table_rows", "Rows of the table in this scorer.", labels=TABLE)
        size = GaugeMetricFamily("scorer_table_bytes", "Memory of the rows of the table.", labels=TABLE)
        lag = GaugeMetricFamily(
            "scorer_table_lag_seconds",
            "Time since the rows of the table last equalled the end of its topic, in the partition that lags most.",
            labels=TABLE,
        )
        unreadable = CounterMetricFamily(
            "scorer_table_unreadable_rows", "Records of the table that could not be used.", labels=["table", "reason"]
        )
        lookups = CounterMetricFamily(
            "scorer_table_lookups", "Look-ups of rows by result: row, no-row or no-key.", labels=["table", "result"]
        )
        waiting = GaugeMetricFamily("scorer_table_waiting_partitions", "Assigned partitions that wait for a table.")
        tables = self.tables
        waiting.add_metric([], 0 if tables is None else tables.waiting_partitions)
        if tables is not None:
            for name, (count, memory) in tables.sizes().items():
                rows.add_metric([name], count)
                size.add_metric([name], memory)
            lags: dict[str, float] = {}
            for status in tables.status():
                lags[status.table] = max(status.lag_seconds, lags.get(status.table, 0.0))
            for name, seconds in lags.items():
                lag.add_metric([name], seconds)
            for name, reasons in tables.unreadable().items():
                for reason, number in reasons.items():
                    unreadable.add_metric([name, reason], number)
            for name, results in tables.lookups.items():
                for result, number in results.copy().items():
                    lookups.add_metric([name, result], number)
        return rows, size, lag, unreadable, lookups, waiting
