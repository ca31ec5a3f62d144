"""Runs of events by length: no run is expected to exceed the limit, and the callback precedes each run."""

import json
from typing import Any

import numpy as np
import pytest

from model_registry.package.model_inputs import InputAssembler, ragged
from model_registry.package.signature import Signature
from model_registry.package.signature_schema import parse_signature
from scorer.backends.base import InferenceFailed
from scorer.models.length_bucketing import LengthBucketedRuns

FIELD = {"name": "x", "array": True, "max_length": 512}
X = {"tensor": "x", "dtype": "float32", "shape": [-1], "pad": 0, "fields": [FIELD]}
SIGNATURE = parse_signature(json.dumps({"inputs": [X], "output": {"tensor": "y"}}))


class Summing:
    """The model y = the sum of x. Each element takes a hundredth of a second of its clock."""

    device = "cpu"

    def __init__(self) -> None:
        self.now = 0.0
        self.shapes: list[tuple[int, ...]] = []
        self.width = self.rows = 1

    def signature(self) -> Signature:
        return SIGNATURE

    def run(self, tensors: dict[str, Any]) -> dict[str, Any]:
        x = InputAssembler(SIGNATURE).all_tensors(tensors)["x"]
        self.shapes.append(x.shape)
        self.now += 0.01 * x.size
        return {"y": np.tile(x.sum(axis=1, keepdims=True), (self.rows, self.width))}

    def close(self) -> None:
        return


def rows(*lengths: int) -> dict[str, Any]:
    return {"x": ragged((np.ones(length, np.float32) for length in lengths), len(lengths))}


def test_runs_that_would_take_too_long_are_cut() -> None:
    model, times = Summing(), []
    runs = LengthBucketedRuns(SIGNATURE, 1.0, lambda: model.now)
    sixteen = rows(*[16] * 16)
    outputs = runs.run(model, sixteen, lambda: times.append(model.now))
    assert model.shapes == [(16, 16)]  # no cost is known yet
    assert outputs["y"].ravel().tolist() == [16.0] * 16
    model.shapes.clear()
    assert runs.run(model, sixteen, lambda: times.append(model.now))["y"].ravel().tolist() == [16.0] * 16
    assert model.shapes == [(6, 16), (6, 16), (4, 16)]
    assert len(times) == 4
    model.shapes.clear()
    assert runs.run(model, rows(500, 3), lambda: None)["y"].ravel().tolist() == [500.0, 3.0]
    assert model.shapes == [(1, 8), (1, 512)]


def test_an_output_whose_shape_changes_from_run_to_run_is_no_score() -> None:
    model = Summing()
    runs = LengthBucketedRuns(SIGNATURE, 1.0)
    runs.run(model, rows(3), lambda: None)
    model.width = 2
    with pytest.raises(
        InferenceFailed, match=r"output 'y' has the shape \(B, 2\), and had \(B, 1\) for events of another length"
    ):
        runs.run(model, rows(30), lambda: None)


def test_outputs_without_a_row_for_each_event_are_a_failure() -> None:
    model = Summing()
    model.rows = 3
    with pytest.raises(InferenceFailed, match="not one row for each of 1 events"):
        LengthBucketedRuns(SIGNATURE, 1.0).run(model, rows(3, 300), lambda: None)
