"""The partitions of tables over all running scorers."""

from typing import Any

from scorer.console.scorer_fold import ScorerState
from scorer.console.table_partitions import RESTORING, TablePartition, summarize
from scorer.observability.status_record import TablePartitionStatus
from tests.unit.scorer.console.console_records import NOW, status


def scorer(replica: str, *tables: TablePartitionStatus, silent_seconds: float = 3.0, **changed: Any) -> ScorerState:
    record = status(f"n.{replica}", "1.0.0", 1, tables=list(tables), **changed)
    return ScorerState(record, NOW - silent_seconds, record)


def table_partition(table: str, partition: int, rows: int = 10, **changed: Any) -> TablePartitionStatus:
    facts = {"bytes": 1_000, "position": 20, "end": 20, "lag_seconds": 0.0, "restored": True}
    return TablePartitionStatus(table, partition, rows, **{**facts, **changed})


def test_each_partition_of_a_table_is_listed_with_the_scorer_that_holds_it() -> None:
    scorers = [
        scorer("b", table_partition("customers", 1, rows=7)),
        scorer("a", table_partition("customers", 0), table_partition("customers", 2)),
    ]
    partitions = summarize(scorers, NOW)
    assert [(partition.partition, partition.scorers, partition.rows) for partition in partitions] == [
        (0, ["n.a"], 10),
        (1, ["n.b"], 7),
        (2, ["n.a"], 10),
    ]


def test_of_several_scorers_with_the_same_rows_the_one_that_is_furthest_behind_counts() -> None:
    late = table_partition("regions", 0, rows=8, bytes=1_200, position=15, lag_seconds=4.0, restored=False)
    assert summarize([scorer("a", table_partition("regions", 0)), scorer("b", late)], NOW) == [
        TablePartition("regions", 0, ["n.a", "n.b"], 8, 1_200, 15, 4.0, RESTORING)
    ]


def test_scorers_that_do_not_run_and_shadows_hold_no_rows() -> None:
    scorers = [
        scorer("a", table_partition("customers", 0)),
        scorer("b", table_partition("customers", 1), silent_seconds=60.0),
        scorer("c", table_partition("customers", 2), state="stopped"),
        scorer("d", table_partition("customers", 3), shadow=True),
    ]
    assert [partition.partition for partition in summarize(scorers, NOW)] == [0]


def test_a_table_that_no_scorer_reports_has_an_entry_without_a_partition() -> None:
    assert summarize([scorer("a")], NOW, ["customers"]) == [TablePartition("customers", None, [])]
    assert summarize([scorer("a")], NOW) == []
