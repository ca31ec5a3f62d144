"""The metrics of tables are those of the tables at the time of the scrape."""

from prometheus_client import CollectorRegistry

from publisher.kafka.topics import Topic
from scorer.decoding.table_rows import row_decoder_factory
from scorer.observability.table_metrics import TableMetrics
from scorer.tables.tables import Tables
from tests.unit.scorer.minimal import minimal
from tests.unit.scorer.tables.fake_source import FakeSource


def test_rows_lag_and_look_ups_are_exported_by_table() -> None:
    settings = minimal(tables={"t": {"topic": "f"}})
    source = FakeSource({"f": Topic("id", 1)}, {("f", 0): [(b"a", b"{}"), (None, b"{}")]})
    metrics = TableMetrics()
    registry = CollectorRegistry()
    registry.register(metrics)
    metrics.tables = Tables(settings.tables, source, lambda name: row_decoder_factory(name, settings))
    metrics.tables.follow([("in", 0)], [("in", 0)])
    assert metrics.tables.waiting()
    assert registry.get_sample_value("scorer_table_waiting_partitions") == 1
    for _ in range(5):
        metrics.tables.reader.step()
    metrics.tables.columns("t", [], [b"a", b"b", None], [0, 0, 0])
    of_table = {"table": "t"}
    assert registry.get_sample_value("scorer_table_rows", of_table) == 1
    assert (registry.get_sample_value("scorer_table_bytes", of_table) or 0) > 0
    assert (registry.get_sample_value("scorer_table_lag_seconds", of_table) or 0) >= 0
    assert registry.get_sample_value("scorer_table_unreadable_rows_total", {**of_table, "reason": "no-key"}) == 1
    results = [
        registry.get_sample_value("scorer_table_lookups_total", {**of_table, "result": result}) for result in ("row", "no-row")
    ]
    assert results == [1, 1]


def test_without_tables_no_partition_waits() -> None:
    registry = CollectorRegistry()
    registry.register(TableMetrics())
    assert registry.get_sample_value("scorer_table_waiting_partitions") == 0
    assert registry.get_sample_value("scorer_table_rows", {"table": "t"}) is None
