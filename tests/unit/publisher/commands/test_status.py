"""The output of `publisher status` on a terminal."""

import io

from rich.console import Console

from publisher.commands.status import tables
from publisher.relay.checkpoints import Registration
from publisher.relay.lag_report import PartitionLag, RelayStatus
from publisher.relay.scrape_metrics import LaneStatus, ProcessStatus

TOPIC = "us-east-1.flight-delay.scores.v2"


def report(lag: int | None, records: int) -> RelayStatus:
    """Return the state of a relay of 12 partitions in two lanes, with this lag and position of each partition."""
    lanes = [
        LaneStatus(
            lane=number,
            lag_records=lag or 0,
            lag_seconds=86_400.5,
            records=records,
            transactions=records // 1_000,
            aborts=123,
            refused=1_234,
            checkpoint_age_seconds=12.5,
            records_per_second=123_456.7,
        )
        for number in range(2)
    ]
    partitions = [
        PartitionLag(TOPIC, number, number % 2, records, None if lag is None else records + lag, lag, 86_400.5, 12.5, 123_456.7)
        for number in range(12)
    ]
    last = Registration(2, "instance", "run", "relay-0.relays.scoring.svc.cluster.local", 12_345, 2)
    process = ProcessStatus(
        copying=True, restarts=3, last_error="a broker does not answer", last_error_ms=1_000, stopped=[], lanes=lanes
    )
    return RelayStatus("to-eu-west", 61_000, last, lag is not None, process, partitions)


def printed(status: RelayStatus, width: int = 80) -> list[str]:
    console = Console(width=width, file=io.StringIO())
    console.print(tables(status))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_a_row_is_a_line_of_80_columns() -> None:
    lines = printed(report(lag=1_234_567, records=98_765_432))
    assert max(map(len, lines)) <= 80
    assert "0    1,234,567 86,400 123,457 98,765,432  98,765    123   1,234   12.5" in lines
    first = next(line for line in lines if "99,999,999" in line)
    assert first.split()[1:] == ["0", "98,765,432", "99,999,999", "1,234,567", "86,400", "123,457", "12.5"]


def test_large_numbers_are_complete_and_only_names_of_partitions_fold() -> None:
    lines = printed(report(lag=123_456_789, records=12_345_678_901))
    assert max(map(len, lines)) <= 80
    rows = [line for line in lines if "12,345,678,901" in line]
    assert len(rows) == 2 + 12
    assert all("123,456,789" in row and row.endswith("12.5") for row in rows)
    assert f"{TOPIC}[11]" in "".join(line[:11].strip() for line in lines)


def test_an_unknown_lag_is_a_question_mark() -> None:
    lines = printed(report(lag=None, records=1_000))
    assert "the source does not answer: its backlog is unknown" in lines
    assert sum(line.split().count("?") >= 2 for line in lines) == 12
