"""`scorer compare`: a candidate beside the champion on events that a real broker keeps."""

import json
import re
from typing import Any

import pytest

from tests.integration.scorer.rig import MakeRig, Rig, events
from tests.support import models

COUNT = 128
LOW = 1 / 128
"""A factor with which all events that number less than 64 are called low, in place of the first alone."""


@pytest.fixture
def rig(make_rig: MakeRig) -> Rig:
    """Version 1.0.0, score = 2 n, in production, 2.0.0 with score = 3 n, and events n of 0 to 127, none of them scored."""
    rig = make_rig().stocked(3, versions=2)
    rig.emit(events(COUNT))
    return rig


def compared(rig: Rig, *arguments: str, code: int) -> Any:
    completed = rig.run("scorer", "compare", "scorer.yaml", *arguments, "--json", code=code)
    assert completed.stdout, completed.stderr
    return json.loads(completed.stdout)


def test_a_candidate_that_differs_in_its_scores_alone(rig: Rig) -> None:
    comparison = compared(rig, "2.0.0", "--max-psi", "20", code=0)
    assert comparison["passed"]
    assert (comparison["events"], comparison["scored_by_both"], comparison["dead_letters"]) == (
        COUNT,
        COUNT,
        {"champion": 0, "candidate": 0},
    )
    assert sum(part["to"] - part["from"] for part in comparison["read"]) >= COUNT
    assert comparison["scores_that_differ"] == COUNT - 1  # both say 0 of the first
    largest = comparison["largest_differences"]
    assert [each["difference"] for each in largest] == [float(COUNT - 1 - n) for n in range(20)]
    assert json.loads(largest[0]["event"])["id"] == f"e{COUNT - 1}"
    assert (largest[0]["champion"], largest[0]["candidate"]) == (str(2.0 * (COUNT - 1)), str(3.0 * (COUNT - 1)))
    assert {(flip["champion"], flip["candidate"]): flip["events"] for flip in comparison["flips"]} == {
        ("low", "low"): 1,
        ("high", "high"): COUNT - 1,
    }
    assert all(cost > 0 for cost in comparison["cost_us_per_event"].values())
    beyond = compared(rig, "2.0.0", code=1)["rules"]
    assert [rule["rule"] for rule in beyond if rule["beyond"]] == ["psi"]
    assert rig.answered() == 0


def test_a_candidate_that_decides_otherwise(rig: Rig) -> None:
    rig.push(models.linear_package(rig.folder / "3.0.0", LOW), "3.0.0")
    comparison = compared(rig, "3.0.0", "--last", "1h", code=1)
    flips = {(flip["champion"], flip["candidate"]): flip["events"] for flip in comparison["flips"]}
    assert flips == {("low", "low"): 1, ("high", "low"): 63, ("high", "high"): 64}
    rules = {rule["rule"]: rule for rule in comparison["rules"]}
    assert rules["flips"]["value"] == 63 / COUNT
    assert rules["flips"]["beyond"]
    assert compared(rig, "3.0.0", "--max-flips", "50%", "--max-psi", "20", code=0)["passed"]
    completed = rig.run("scorer", "compare", "scorer.yaml", "3.0.0", code=1)
    assert "beyond limits: flips 0.4922 (limit 0.05)" in completed.stderr
    assert "128 events, 128 scored by both" in completed.stdout
    assert re.search(r"^ cost +[0-9.]+ +any", completed.stdout, re.MULTILINE)


def test_dead_letters_of_the_candidate_alone_are_reported_with_their_events(rig: Rig) -> None:
    rig.produce(b"{", key=b"k")
    models.package(rig.folder / "moody", models.moody)
    comparison = compared(rig, "./moody", "--max-flips", "1", "--max-psi", "100", code=1)
    assert (comparison["dead_letters"], comparison["dead_only_by_candidate"]) == (
        {"champion": 1, "candidate": 2},
        {"score-not-finite": 1},
    )
    (example,) = comparison["dead_examples"]
    assert json.loads(example["event"])["id"] == "e0"  # the logarithm of 0
    assert [rule["rule"] for rule in comparison["rules"] if rule["beyond"]] == ["errors"]
    assert compared(rig, "./moody", "--max-flips", "1", "--max-psi", "100", "--max-errors", "1%", code=0)["passed"]


def test_no_events_is_no_pass(rig: Rig) -> None:
    nothing = compared(rig, "2.0.0", "--to", "1", code=1)
    assert (nothing["passed"], nothing["events"], nothing["rules"]) == (False, 0, [])
    some = compared(rig, "2.0.0", "--events", "30", "--max-psi", "100", code=0)
    assert 0 < some["events"] <= 30


def test_invalid_comparisons_are_refused_by_name(rig: Rig) -> None:
    assert "9.9.9" in rig.run("scorer", "compare", "scorer.yaml", "9.9.9", code=None).stderr
    for option, value in (("--last", "1y"), ("--max-flips", "5 of 100"), ("--max-errors", "200%")):
        message = rig.run("scorer", "compare", "scorer.yaml", "2.0.0", option, value, code=2).stderr
        assert value in message
    rig.run("scorer", "compare", "scorer.yaml", "2.0.0", "--last", "1h", "--to", "2030-01-01", code=2)
