"""The regression check: what it finds, that its baseline fits what it measures, and that it measures at all."""

import json

import pytest

from tests.proofs.bench.machine import Cores
from tests.proofs.bench.regression import BASELINE, measure, verdicts


def test_a_component_that_costs_more_than_the_tolerance_is_found() -> None:
    found = verdicts({"decode@64": 1.7, "infer@64": 1.5}, {"decode@64": 1.0, "infer@64": 1.0}, tolerance=1.6)
    assert [verdict.dearer for verdict in found] == [True, False]


def test_the_baseline_has_every_component() -> None:
    baseline = json.loads(BASELINE.read_text())
    found = measure(rounds=1)
    assert baseline.keys() == found.keys()
    assert all(value > 0 for value in found.values())


def test_the_scorer_gets_the_last_core() -> None:
    assert Cores.split({0, 1, 5}) == Cores(5, frozenset({0, 1}))
    with pytest.raises(ValueError, match="two cores"):
        Cores.split({3})
