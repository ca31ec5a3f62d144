"""The workload of the joined drain: each event has a row in its own partition, and a restore has figures."""

import json
from pathlib import Path

from model_registry.package.signature_schema import parse_signature
from tests.benchmarks.bench import joined, tables
from tests.benchmarks.bench.joined import JoinedEvents, Sample, restore_figures
from tests.benchmarks.bench.stage import PARTITIONS

ROWS = 2_000


def test_the_row_of_each_event_is_in_the_partition_of_the_event() -> None:
    partition_by_key = {tables.key(number): number % PARTITIONS for number in range(ROWS)}
    events = JoinedEvents(ROWS)
    assert all(partition_by_key[events.key(number)] == number % PARTITIONS for number in range(3 * ROWS))


def test_as_many_events_as_rows_use_every_row_once() -> None:
    events = JoinedEvents(ROWS)
    assert {events.key(number) for number in range(ROWS)} == {tables.key(number) for number in range(ROWS)}


def test_an_event_has_its_id_the_numbers_absent_from_the_table_and_the_key_of_its_row() -> None:
    events = JoinedEvents(ROWS)
    event = json.loads(events.value(5))
    assert event.pop("id") == 5
    assert event.pop("customer").encode() == events.key(5)
    assert list(event) == joined.EVENT.names


def test_the_joined_version_reads_five_of_its_thirty_numbers_from_the_table(tmp_path: Path) -> None:
    signature = parse_signature((joined.package(tmp_path / "joined", 1) / "signature.json").read_text())
    fields = signature.inputs[0].fields
    columns = [field.name for field in fields if field.source == "table:customers"]
    assert len(fields) == 30
    assert columns == [f"customers.{column}" for column in json.loads(next(tables.rows(1))[1])]
    assert all(field.required for field in fields)


def test_a_restore_lasts_from_the_last_sample_without_rows_to_the_first_with_all() -> None:
    samples = [
        Sample(10, 1, 0, 0),
        Sample(11, 2, 0, 0),
        Sample(12, 2.5, 400, 9),
        Sample(13, 3, 1000, 70),
        Sample(14, 4, 1000, 80),
    ]
    assert restore_figures(samples) == {
        "restored_rows_per_s": 500,
        "restored_rows_per_cpu_s": 1000,
        "rows": 1000,
        "bytes_per_row": 0.1,
    }


def test_a_table_that_never_had_a_row_has_no_rate() -> None:
    assert restore_figures([Sample(10, 1, 0, 0)])["restored_rows_per_s"] == 0
    assert restore_figures([])["rows"] == 0
