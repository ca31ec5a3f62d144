"""Scores of a version with its own signature, its decoder and ONNX Runtime, as from a scorer."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_registry import package
from model_registry.package import Package
from publisher.errors import REFUSED, Fatal
from tests.support.models import LINEAR, classifier, linear, linear_package, three_scores
from tests.support.models import package as made
from tests.unit.scorer.minimal import minimal
from tests.unit.training.hold_out import feature_record, rows
from training.snapshot.rows import Beside, LabelledRows
from training.snapshot.target import PredictionInterval, Target
from training.validation_gate.score_holdout import AT_A_TIME, scored

THREE = Target("classes", ("a", "b", "c"))
ARGMAX = {**LINEAR, "output": {"tensor": "p"}, "labels": ["c", "a", "b"], "decision": {"argmax": True}}
PROBABILITIES = {**LINEAR, "output": {"tensor": "probabilities", "index": 1}}


def held_out(*events: dict[str, Any] | bytes) -> LabelledRows:
    values = [event if isinstance(event, bytes) else json.dumps(event).encode() for event in events]
    return rows(np.zeros(len(events)), np.arange(len(events)), values)


def version(folder: Path, signature: dict[str, Any], write: Callable[[Path], None] | None = None) -> Package:
    return package.read(made(folder, write or (lambda path: linear(path, 0.1)), signature))


def test_scores_and_decisions_are_those_of_the_model(tmp_path: Path) -> None:
    evaluated, rejected = scored(
        package.read(linear_package(tmp_path / "m", 0.1)), minimal(), held_out({"a": 1, "b": 2}, {"a": 3, "b": 2})
    )
    assert evaluated.scores == pytest.approx([0.3, 0.5])
    assert (evaluated.decisions.tolist(), rejected.counts) == ([0, 1], {})


def test_each_version_reads_the_fields_that_its_own_signature_names(tmp_path: Path) -> None:
    fields = ["c", {"name": "a", "required": False, "default": 7.0}]
    other = version(tmp_path / "m", {**LINEAR, "inputs": [{"tensor": "x", "dtype": "float32", "fields": fields}]})
    assert scored(other, minimal(), held_out({"b": 1, "c": 2}, {"a": 1, "c": 2}))[0].scores == pytest.approx([0.9, 0.3])


def test_rows_that_a_version_cannot_score_are_reported_with_their_position(tmp_path: Path) -> None:
    events: list[dict[str, Any] | bytes] = [{"a": 1, "b": 2}, {"a": 1}, b"{", {"a": 9, "b": 2}, {"a": 1}]
    evaluated, rejected = scored(package.read(linear_package(tmp_path / "m", 0.1)), minimal(), held_out(*events))
    assert np.isnan(evaluated.scores).tolist() == [False, True, True, False, True]
    assert evaluated.decisions[evaluated.scored].tolist() == [0, 1]
    assert rejected.counts == {"missing-field": 2, "malformed": 1}
    assert rejected.first["missing-field"].startswith("in[0]@1: ")


def test_rows_of_the_feature_log_are_scored_with_their_logged_inputs(tmp_path: Path) -> None:
    records = [feature_record(a=1.0, b=2.0), feature_record(a=1.0), feature_record(a=3.0, b=2.0)]
    logged = replace(held_out(*records), logged=True)
    evaluated, rejected = scored(package.read(linear_package(tmp_path / "m", 0.1)), minimal(), logged)
    assert evaluated.scores == pytest.approx([0.3, np.nan, 0.5], nan_ok=True)
    assert rejected.counts == {"missing-field": 1}


def test_rows_are_scored_in_batches_in_their_order(tmp_path: Path) -> None:
    events = [{"a": at, "b": 0} for at in range(AT_A_TIME + 20)]
    evaluated, _ = scored(package.read(linear_package(tmp_path / "m", 1.0)), minimal(), held_out(*events))
    assert evaluated.scores.tolist() == list(range(AT_A_TIME + 20))


def test_without_a_decision_half_is_the_threshold(tmp_path: Path) -> None:
    without_decision = version(tmp_path / "m", {**LINEAR, "decision": None})
    evaluated, _ = scored(without_decision, minimal(), held_out({"a": 4.9, "b": 0}, {"a": 5.1, "b": 0}))
    assert evaluated.decisions.tolist() == [0, 1]


def test_the_probability_of_the_second_class_is_the_score(tmp_path: Path) -> None:
    evaluated, _ = scored(
        version(tmp_path / "m", PROBABILITIES, classifier), minimal(), held_out({"a": 0, "b": 0}, {"a": 0, "b": 1})
    )
    assert evaluated.scores == pytest.approx([0.5, 1 / (1 + np.exp(-1))])


def test_fields_from_headers_are_read_where_the_rows_have_them(tmp_path: Path) -> None:
    fields = ["a", {"name": "b", "from": "header:b"}]
    header_version = version(tmp_path / "m", {**LINEAR, "inputs": [{"tensor": "x", "dtype": "float32", "fields": fields}]})
    without = held_out({"a": 1})
    with pytest.raises(Fatal, match="reads field 'b' from header:b, but the rows were joined without it") as raised:
        scored(header_version, minimal(), without)
    assert raised.value.exit_code == REFUSED
    rows_with_headers = LabelledRows(
        without.tensors, without.outcomes, without.places, without.values, Beside([None], [[("b", b"4")]])
    )
    assert scored(header_version, minimal(), rows_with_headers)[0].scores == pytest.approx([0.5])


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        ({**LINEAR, "output": {"tensor": "probabilities"}, "decision": None}, "scores none of 1 held-out events: its score is"),
        (
            {**LINEAR, "output": {"tensor": "probabilities"}, "labels": ["a", "b"], "decision": {"argmax": True}},
            "decides among 'a', 'b', by the largest score of a row",
        ),
    ],
)
def test_a_version_whose_score_is_not_one_number_is_refused(signature: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(Fatal) as raised:
        scored(version(tmp_path / "m", signature, classifier), minimal(), held_out({"a": 0, "b": 0}))
    assert (message in str(raised.value), raised.value.exit_code) == (True, REFUSED)


def test_a_version_that_scores_nothing_and_one_that_cannot_be_loaded_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Fatal, match=r"scores none of 1 held-out events: missing-field 1; the first in\[0\]@0"):
        scored(package.read(linear_package(tmp_path / "m", 0.1)), minimal(), held_out({"c": 0}))
    golden = [{"event": {"a": 1.0, "b": 2.0}, "score": 9.0, "tolerance": 1e-5}]
    unloadable = package.read(made(tmp_path / "n", lambda path: linear(path, 0.1), LINEAR, golden))
    with pytest.raises(Fatal, match="version n is rejected: golden example 1 must score 9"):
        scored(unloadable, minimal(), held_out({"a": 0, "b": 0}))


def with_target(target: Target, *events: dict[str, Any]) -> LabelledRows:
    labelled = held_out(*events)
    return replace(labelled, outcomes=labelled.outcomes.astype(target.dtype), target=target)


def test_the_scores_of_classes_are_in_the_order_of_the_labels_classes(tmp_path: Path) -> None:
    events = with_target(THREE, {"a": 3, "b": 1}, {"a": 0, "b": 5})
    evaluated, rejected = scored(version(tmp_path / "m", ARGMAX, three_scores), minimal(), events)
    assert evaluated.scores.tolist() == [[1.0, 4.0, 3.0], [5.0, 5.0, 0.0]]
    assert (evaluated.decisions.tolist(), rejected.counts) == ([1, 0], {})


def test_a_decision_below_the_threshold_is_no_class(tmp_path: Path) -> None:
    unsure = {**ARGMAX, "decision": {"argmax": True, "threshold": 5.0, "below": "unsure"}}
    events = with_target(THREE, {"a": 3, "b": 1}, {"a": 0, "b": 5})
    evaluated, _ = scored(version(tmp_path / "m", unsure, three_scores), minimal(), events)
    assert evaluated.decisions.tolist() == [3, 0]


def test_of_several_outputs_the_one_that_the_decision_names_is_judged(tmp_path: Path) -> None:
    outputs = [{"name": "sum", "tensor": "sum", "index": 0}, {"name": "kind", "tensor": "p"}]
    named = {**ARGMAX, "output": outputs, "decision": {"argmax": True, "output": "kind"}}
    package_ = version(tmp_path / "m", named, three_scores)
    evaluated, _ = scored(package_, minimal(), with_target(THREE, {"a": 3, "b": 1}))
    assert evaluated.scores.tolist() == [[1.0, 4.0, 3.0]]
    number = {**named, "labels": None, "decision": {"threshold": 1, "at_or_above": "x", "below": "y", "output": "sum"}}
    judged = scored(
        version(tmp_path / "n", number, three_scores), minimal(), with_target(Target("regression"), {"a": 3, "b": 1})
    )
    assert judged[0].scores.tolist() == [4.0]


def with_bounds(low: str, high: str) -> Target:
    return Target("regression", interval=PredictionInterval(low, high, 0.8))


BOUNDS = {
    **LINEAR,
    "output": [{"name": "sum", "tensor": "sum", "index": 0}, *({"name": f"p{n}", "tensor": "p", "index": n} for n in (0, 1))],
    "decision": None,
}


def test_intervals_are_the_outputs_that_the_target_names(tmp_path: Path) -> None:
    version_ = version(tmp_path / "m", BOUNDS, three_scores)
    events: list[dict[str, Any]] = [{"a": 3, "b": 1}, {"a": 0, "b": 5}]
    evaluated, _ = scored(version_, minimal(), with_target(with_bounds("p0", "p1"), *events))
    assert evaluated.scores.tolist() == [4.0, 5.0]
    assert evaluated.intervals is not None
    assert evaluated.intervals.tolist() == [[3.0, 1.0], [0.0, 5.0]]
    assert evaluated.select(np.array([False, True])).intervals.tolist() == [[0.0, 5.0]]  # type: ignore[union-attr]
    for target in (Target("regression"), with_bounds("p0", "p9")):
        assert scored(version_, minimal(), with_target(target, *events))[0].intervals is None


def test_event_without_a_score_has_no_interval(tmp_path: Path) -> None:
    rows_ = with_target(with_bounds("p0", "p1"), {"a": 3}, {"a": 3, "b": 1})
    evaluated, _ = scored(version(tmp_path / "m", BOUNDS, three_scores), minimal(), rows_)
    assert evaluated.intervals is not None
    assert np.isnan(evaluated.intervals).tolist() == [[True, True], [False, False]]


def test_bound_that_is_a_row_of_numbers_is_refused_by_name(tmp_path: Path) -> None:
    outputs = [{"name": "sum", "tensor": "sum", "index": 0}, {"name": "row", "tensor": "p"}]
    version_ = version(tmp_path / "m", {**BOUNDS, "output": outputs}, three_scores)
    with pytest.raises(Fatal, match=r"the output 'row' of evaluation\.interval is not one number for each event") as raised:
        scored(version_, minimal(), with_target(with_bounds("sum", "row"), {"a": 3, "b": 1}))
    assert raised.value.exit_code == REFUSED


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (Target("classes", ("a", "b", "d")), "decides among 'c', 'a', 'b', but the labels' classes are 'a', 'b', 'd'"),
        (Target("regression"), "decides among 'c', 'a', 'b', but the labels are numbers"),
    ],
)
def test_a_version_for_other_labels_is_refused_with_both(target: Target, message: str, tmp_path: Path) -> None:
    with pytest.raises(Fatal) as raised:
        scored(version(tmp_path / "m", ARGMAX, three_scores), minimal(), with_target(target, {"a": 0, "b": 0}))
    assert (message in str(raised.value), "publish.channel" in raised.value.hint) == (True, True)
