"""A relay's metrics are parsed as they were exported, and a second observation adds rates."""

import time
from dataclasses import replace

from prometheus_client import CollectorRegistry, generate_latest

from publisher.relay.lag_report import PartitionLag, RelayStatus, with_rates
from publisher.relay.metrics import RelayMetrics
from publisher.relay.relay_state import RelayState
from publisher.relay.scrape_metrics import LaneStatus, ProcessStatus, fetch_process, parse_process
from publisher.relay.transform import Route

NOW_MS = 1_000_000


def metrics_of(state: RelayState) -> str:
    registry = CollectorRegistry()
    registry.register(RelayMetrics(state, "eu", "us"))
    return generate_latest(registry).decode()


def status(at_ms: int, copied: int, records: int) -> RelayStatus:
    state = RelayState(1, "r")
    state.lanes[0].copy_counts.copied = records
    row = PartitionLag("t", 0, 0, copied, 100, 100 - copied, 0.0, 0.0)
    return RelayStatus("r", at_ms, None, True, parse_process(metrics_of(state), "r"), [row])


def test_a_process_is_read_from_its_own_metrics() -> None:
    state = RelayState(2, "r")
    state.record_start()
    lane = state.lanes[1]
    lane.copy_counts.copied, lane.counters.commits, lane.counters.aborts = 1_234_567, 89, 2
    lane.routes = {("t", 0): Route("eu", "t", 0, "t", 5)}
    lane.routes["t", 0].end = 12
    process = parse_process(metrics_of(state), "r")
    assert process is not None
    assert (process.copying, process.restarts, process.last_error, process.last_error_ms) == (True, 0, None, None)
    assert [(row.lane, row.records, row.transactions, row.aborts) for row in process.lanes] == [
        (0, 0, 0, 0),
        (1, 1_234_567, 89, 2),
    ]
    assert [row.lag_records for row in process.lanes] == [0, 7]
    state.record_failure("aborted", RuntimeError('lane 1: "so"\nand so'))
    before = time.time_ns() // 1_000_000
    again = parse_process(metrics_of(state), "r")
    assert again is not None
    assert again.last_error == 'lane 1: "so"\nand so'
    assert again.last_error_ms is not None
    assert abs(again.last_error_ms - before) < 60_000


def test_metrics_of_another_relay_are_ignored_and_metrics_of_an_older_version_are_read() -> None:
    assert parse_process(metrics_of(RelayState(1, "other")), "r") is None
    assert parse_process("# HELP x y\nx 1\n", "r") is None
    assert fetch_process("127.0.0.1:1", "r") is None
    lines = metrics_of(RelayState(1, "r")).splitlines(keepends=True)  # an older version counts less
    process = parse_process("".join(line for line in lines if "records_refused" not in line), "r")
    assert process is not None
    assert [lane.refused for lane in process.lanes] == [0]


def test_a_second_observation_adds_records_per_second() -> None:
    first, second = status(NOW_MS, 10, 5), status(NOW_MS + 2_000, 30, 45)
    report = with_rates(second, first)
    assert report.partitions[0].records_per_second == 10.0
    assert [lane.records_per_second for lane in lanes(report)] == [20.0]
    assert with_rates(first, None) == first
    assert with_rates(status(NOW_MS, 30, 45), first).partitions[0].records_per_second is None


def test_a_restarted_or_new_lane_has_no_rate() -> None:
    restarted = with_rates(status(NOW_MS + 1_000, 5, 0), status(NOW_MS, 10, 5))
    assert restarted.partitions[0].records_per_second is None
    assert [lane.records_per_second for lane in lanes(restarted)] == [None]
    silent = with_rates(status(NOW_MS + 1_000, 20, 9), replace(status(NOW_MS, 10, 5), process=None))
    assert [lane.records_per_second for lane in lanes(silent)] == [None]
    assert with_rates(replace(silent, process=None), status(NOW_MS, 1, 1)).process is None


def lanes(report: RelayStatus) -> list[LaneStatus]:
    assert isinstance(report.process, ProcessStatus)
    return list(report.process.lanes)
