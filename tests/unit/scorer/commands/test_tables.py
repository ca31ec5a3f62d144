"""The output of `scorer tables` for status records and rows."""

import io

import pytest
from rich.console import Console

from publisher.errors import Fatal
from scorer.commands.tables import (
    NewestRow,
    as_lines,
    as_table,
    row_decoder,
    select_table,
)
from scorer.console.table_partitions import READY, TablePartition
from scorer.dead_letters.reasons import Poison
from scorer.decoding.schema_formats.schema import LookUpFailed, Schema, SchemaId
from scorer.decoding.schema_formats.schema_registry import SchemaRegistry
from scorer.decoding.schema_formats.schema_source import SchemaRegistrySource
from tests.unit.scorer.minimal import minimal

SETTINGS = minimal(tables={"customers": {"topic": "customers.features"}, "regions": {"topic": "regions", "scope": "all"}})


def test_a_table_that_no_scorer_reads_is_listed_without_rows() -> None:
    console = Console(width=80, file=io.StringIO())
    rows = TablePartition("customers", 0, ["n.a"], 10, 1_000, 20, 0.25, READY)
    console.print(as_table([rows, TablePartition("regions", None, [])]))
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
    assert decode(b'{"age": 7}') == {"age": 7}
    with pytest.raises(Poison, match="not JSON"):
        decode(b"\xff")


class _RegistryThatFailsOnce:
    """A client of a schema registry whose first request of a schema fails temporarily."""

    def __init__(self) -> None:
        self.requests = 0

    def schema(self, schema_id: SchemaId) -> Schema:  # noqa: ARG002 - each id has the same schema
        self.requests += 1
        if self.requests == 1:
            raise LookUpFailed("busy", 503)
        return Schema("avro", '{"type": "record", "name": "Row", "fields": [{"name": "age", "type": "int"}]}')

    def probe(self) -> None:
        pass


def test_a_row_waits_for_its_schema_while_the_registry_is_slow() -> None:
    settings = minimal(
        tables={"customers": {"topic": "customers.features", "format": "avro"}}, schema_registry={"url": "http://registry"}
    )
    source = SchemaRegistrySource("avro", SchemaRegistry(settings.schema_registry, _RegistryThatFailsOnce()))
    decode = row_decoder(settings, settings.tables["customers"], source)
    assert decode(b"\0\0\0\0\x07\x0e") == {"age": 7}


def test_a_row_without_a_schema_id_in_its_value_is_unreadable_as_in_a_scorer() -> None:
    settings = minimal(
        tables={"customers": {"topic": "customers.features", "format": "avro"}}, schema_registry={"url": "http://127.0.0.1:1"}
    )
    decode = row_decoder(settings, settings.tables["customers"])
    with pytest.raises(Poison, match="schema"):
        decode(b"\x02\x07")
