"""The parts of benchmarks: equal content in every format, figures of arrivals, and regressions of components."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scorer.decoding import decoder_factory
from tests.benchmarks.bench import lengths
from tests.benchmarks.bench.contents import FORMATS, contents
from tests.benchmarks.bench.counting import above, count, delays, firsts, latency, spread, swap
from tests.benchmarks.bench.machine import Cores
from tests.benchmarks.bench.regression import BASELINE, measure, verdicts
from tests.benchmarks.bench.workload import POOL, Workload


@pytest.mark.parametrize("format_", FORMATS)
def test_every_format_has_the_same_content(format_: str, tmp_path: Path) -> None:
    workload = Workload(5, "minutes_{}", 3)
    content = contents(workload, format_, tmp_path)
    decoded = decoder_factory.create_decoder(content.settings(), workload.signature).decode(list(content.events(POOL + 1)))
    assert not decoded.rejected
    rows = np.array(workload.rows(), np.float32)
    assert np.array_equal(decoded.tensors["x"], np.concatenate([rows, rows[:1]]))
    expected_ids = [str(number) for number in range(POOL + 1)]
    assert [str(id_) for id_ in decoded.ids] == (expected_ids if "id" in content.input else ["None"] * (POOL + 1))


def test_a_component_that_costs_more_than_the_tolerance_is_reported() -> None:
    results = verdicts({"decode@64": 1.7, "infer@64": 1.5}, {"decode@64": 1.0, "infer@64": 1.0}, tolerance=1.6)
    assert [verdict.dearer for verdict in results] == [True, False]


def test_the_baseline_has_every_component() -> None:
    baseline = json.loads(BASELINE.read_text())
    costs = measure(rounds=1)
    assert baseline.keys() == costs.keys()
    assert all(value > 0 for value in costs.values())


def test_both_ways_to_run_texts_give_the_same_scores(tmp_path: Path) -> None:
    figures = lengths.measured(tmp_path / "encoder", 2, quick=True)
    assert figures["largest_difference"] < 1e-5
    assert [len(rates) for rates in figures["events_per_second"].values()] == [2, 2]
    assert len(figures["times_as_fast"]) == 2


def test_the_scorer_gets_the_last_core() -> None:
    assert Cores.split({0, 1, 5}) == Cores(5, frozenset({0, 1}))
    with pytest.raises(ValueError, match="two cores"):
        Cores.split({3})


def test_missing_and_duplicate_arrivals_are_counted() -> None:
    assert count(np.array([0, 1, 1, 3]), 5) == {"missing": 2, "duplicates": 1}
    assert count(np.array([]), 2) == {"missing": 2, "duplicates": 0}


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 30), st.floats(0, 1e6)), min_size=1))
def test_the_first_arrival_of_each_id_counts(rows: list[tuple[int, float]]) -> None:
    arrivals = np.array([[number, at, 1.0] for number, at in rows]).T
    expected: dict[int, float] = {}
    for number, at in rows:
        expected[number] = min(at, expected.get(number, at))
    first = firsts(arrivals)
    assert dict(zip(first[0].astype(int).tolist(), first[1].tolist(), strict=True)) == expected


def test_a_delay_counts_from_when_the_event_was_due() -> None:
    ids, late = delays(np.array([[1, 0], [1_030.0, 1_005.0], [1, 1]]), np.array([1_000.0, 1_010.0]))
    assert ids.tolist() == [0, 1]
    assert late.tolist() == [5.0, 20.0]


def test_percentiles_of_nothing_are_none() -> None:
    assert set(latency(np.array([])).values()) == {None}
    assert latency(np.arange(101.0))["p50_ms"] == 50.0


def test_repeated_runs_give_a_spread_and_the_sum_of_their_faults() -> None:
    runs = [{"mode": "a", "us": us, "missing": 1, "duplicates": 0} for us in (3.0, 1.0, 2.0)]
    assert spread(runs) == {
        "mode": "a",
        "us": {"median": 2.0, "lowest": 1.0, "highest": 3.0},
        "missing": 3,
        "duplicates": 0,
    }


def test_two_measurements_in_turn_are_compared_run_by_run() -> None:
    runs: list[dict[str, float]] = [{"p99_ms": 40.0}, {"p99_ms": 95.5}, {"p99_ms": 60.0}]
    baseline_runs: list[dict[str, float]] = [{"p99_ms": 41.0}, {"p99_ms": 90.0}, {"p99_ms": 59.0}]
    assert above(runs, baseline_runs, "p99_ms") == {"median": 1.0, "lowest": -1.0, "highest": 5.5}


def test_the_swap_second_is_the_one_around_the_flip() -> None:
    due_ms = np.arange(0, 10_000, 10.0)
    latencies_ms = np.where(np.abs(due_ms - 5_000) <= 500, 30.0, 10.0)
    figures = swap(np.arange(len(due_ms)), latencies_ms, due_ms, 4_000.0, 5_000.0)
    assert figures["before"]["p99_ms"] == 10.0
    assert figures["swap_second"]["p99_ms"] == 30.0
    assert figures["during"]["max_ms"] == 30.0
    assert figures["p99_ratio"] == pytest.approx(3.0)
