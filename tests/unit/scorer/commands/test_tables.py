"""What `scorer tables` prints of status records and rows."""

import io
from typing import Any

import pytest
from rich.console import Console

from publisher.errors import Fatal
from scorer.commands.tables import (
    READY,
    RESTORING,
    NewestRow,
    TablePartition,
    as_lines,
    as_table,
    row_decoder,
    select_table,
    summarize,
)
from scorer.console.scorer_fold import ScorerState
from scorer.dead_letters.reasons import Poison
from scorer.observability.status_record import TablePartitionStatus
from tests.unit.scorer.console.console_records import NOW, status
from tests.unit.scorer.minimal import minimal

SETTINGS = minimal(tables={"customers": {"topic": "customers.features"}, "regions": {"topic": "regions", "scope": "all"}})


def scorer(replica: str, *tables: TablePartitionStatus, silent_seconds: float = 3.0, **changed: Any) -> ScorerState:
    record = status(f"n.{replica}", "1.0.0", 1, tables=list(tables), **changed)
    return ScorerState(record, NOW - silent_seconds, record)


def held(table: str, partition: int, rows: int = 10, **changed: Any) -> TablePartitionStatus:
    facts = {"bytes": 1_000, "position": 20, "end": 20, "lag_seconds": 0.0, "restored": True}
    return TablePartitionStatus(table, partition, rows, **{**facts, **changed})


def test_each_partition_of_a_table_is_listed_with_the_scorer_that_holds_it() -> None:
    scorers = [scorer("b", held("customers", 1, rows=7)), scorer("a", held("customers", 0), held("customers", 2))]
    partitions = summarize(["customers"], scorers, NOW)
    assert [(each.partition, each.scorers, each.rows) for each in partitions] == [
        (0, ["n.a"], 10),
        (1, ["n.b"], 7),
        (2, ["n.a"], 10),
    ]


def test_of_several_scorers_with_the_same_rows_the_one_that_is_furthest_behind_counts() -> None:
    late = held("regions", 0, rows=8, bytes=1_200, position=15, lag_seconds=4.0, restored=False)
    assert summarize(["regions"], [scorer("a", held("regions", 0)), scorer("b", late)], NOW) == [
        TablePartition("regions", 0, ["n.a", "n.b"], 8, 1_200, 15, 4.0, RESTORING)
    ]


def test_scorers_that_do_not_run_and_shadows_hold_no_rows() -> None:
    scorers = [
        scorer("a", held("customers", 0)),
        scorer("b", held("customers", 1), silent_seconds=60.0),
        scorer("c", held("customers", 2), state="stopped"),
        scorer("d", held("customers", 3), shadow=True),
    ]
    assert [each.partition for each in summarize(["customers"], scorers, NOW)] == [0]


def test_a_table_that_no_scorer_reads_is_listed_without_rows() -> None:
    console = Console(width=80, file=io.StringIO())
    partitions = summarize(["customers", "regions"], [scorer("a", held("customers", 0, lag_seconds=0.25))], NOW)
    console.print(as_table(partitions))
    assert isinstance(console.file, io.StringIO)
    assert [line.split() for line in console.file.getvalue().splitlines() if line and line[0] != "─"] == [
        ["table", "partition", "scorers", "rows", "bytes", "position", "lag", "state"],
        ["customers", "0", "1", "10", "1,000", "20", "0.2", "s", READY],
        ["regions", "-", "0", "-", "-", "-", "-", "not", "read"],
    ]


def test_a_table_that_is_not_configured_is_refused_with_a_similar_name() -> None:
    with pytest.raises(Fatal, match="no table 'customer'") as refused:
        select_table(SETTINGS, "customer")
    assert refused.value.hint == "did you mean 'customers'?"


def test_a_record_is_one_line_that_is_harmless_for_a_terminal() -> None:
    rows = [
        NewestRow(0, 7, "2026-01-02T03:04:05.000+00:00", deleted=False, row={"name": "a\x1b[31m\u202e"}),
        NewestRow(1, 8, None, deleted=True, row=None),
        NewestRow(2, 9, None, deleted=False, row=None, problem="the row is not JSON"),
    ]
    assert as_lines(rows).splitlines() == [
        r'partition 0, offset 7, 2026-01-02T03:04:05.000+00:00: {"name":"a\u001b[31m\u202e"}',
        "partition 1, offset 8, no time: deleted",
        "partition 2, offset 9, no time: (unreadable: the row is not JSON)",
    ]
    assert as_lines([]) == "no row has this key"


def test_a_row_that_is_not_json_is_unreadable() -> None:
    decode = row_decoder(SETTINGS, SETTINGS.tables["customers"])
    assert decode(b'{"age": 7}', None) == {"age": 7}
    with pytest.raises(Poison, match="not JSON"):
        decode(b"\xff", None)
