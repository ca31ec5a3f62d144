"""The metrics of tables."""

from prometheus_client import CollectorRegistry

from scorer.observability.table_metrics import TableMetrics
from tests.packaging.deploy.exporters import reported_tables


def test_the_lag_of_a_table_is_that_of_the_partition_that_is_furthest_behind() -> None:
    tables = reported_tables()
    (status,) = tables.status()
    tables.status = lambda: [status, type(status)(table="weather", lag_seconds=7.0)]  # type: ignore[method-assign, call-arg]
    registry = CollectorRegistry()
    registry.register(TableMetrics(tables))
    assert registry.get_sample_value("scorer_table_lag_seconds", {"table": "weather"}) == 7.0
    assert registry.get_sample_value("scorer_table_rows", {"table": "weather"}) == 1
    assert registry.get_sample_value("scorer_table_bytes", {"table": "weather"}) == 100
    assert registry.get_sample_value("scorer_table_unreadable_rows_total", {"table": "weather", "reason": "malformed"}) == 1
    assert registry.get_sample_value("scorer_table_lookups_total", {"table": "weather", "result": "row"}) == 1
    assert registry.get_sample_value("scorer_table_waiting_partitions") == 0
