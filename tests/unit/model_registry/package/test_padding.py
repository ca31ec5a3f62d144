"""The grouping of events into runs, and the tensors of each run."""

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from model_registry.package.model_inputs import InputAssembler, neutral_rows, ragged
from model_registry.package.padding import (
    MAX_ELEMENTS,
    MAX_STEPS,
    SMALLEST_BUCKET,
    STEPS_PER_RUN,
    LengthPlan,
    bucket,
    merge_buckets,
    run_all,
)
from model_registry.package.signature import Signature
from model_registry.package.signature_schema import parse_signature

FIELD = {"name": "x", "array": True, "max_length": 600}
X: dict[str, Any] = {"tensor": "x", "dtype": "float32", "shape": [-1], "pad": -1, "fields": [FIELD]}
DERIVED_INPUTS = [{"tensor": "m", "dtype": "bool", "mask_of": "x"}, {"tensor": "n", "dtype": "int64", "length_of": "x"}]
lengths = st.lists(st.integers(0, 600), min_size=1, max_size=60)


def signature(*inputs: Any) -> Signature:
    return parse_signature(json.dumps({"inputs": inputs, "output": {"tensor": "y"}}))


def rows(sizes: list[int]) -> dict[str, NDArray[Any]]:
    return {"x": ragged((np.full(size, at + 1, np.float32) for at, size in enumerate(sizes)), len(sizes))}


def test_buckets() -> None:
    assert sorted({bucket(length, 512) for length in range(513)}) == [8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512]
    assert {bucket(length, 5) for length in range(6)} == {5}


@given(st.integers(0, 1 << 20), st.integers(1, 1 << 20))
def test_a_bucket_holds_its_lengths_and_wastes_a_third_at_most(length: int, longest: int) -> None:
    length = min(length, longest)
    result = bucket(length, longest)
    assert length <= result <= longest
    assert result <= max(SMALLEST_BUCKET, 1.5 * length)
    assert bucket(result, longest) == result


@given(st.dictionaries(st.integers(1, 600), st.integers(1, 50), min_size=1))
def test_few_events_join_the_next_longer_ones_if_a_run_costs_more(counts: dict[int, int]) -> None:
    target = merge_buckets(counts)
    assert target.keys() == counts.keys()
    assert all(length <= target[length] for length in counts)
    runs = set(target.values())
    assert max(counts) in runs
    padding = sum((target[length] - length) * count for length, count in counts.items())
    assert padding <= STEPS_PER_RUN * (len(counts) - len(runs)) * max(1, len(counts) - len(runs))
    assert merge_buckets({16: 3, 24: 1}) == {16: 16, 24: 24}
    assert merge_buckets({16: 1, 24: 1}) == {16: 24, 24: 24}
    assert merge_buckets({16: 1, 24: 1, 512: 1}) == {16: 24, 24: 24, 512: 512}


@given(lengths, st.booleans())
def test_groups_have_all_rows_once(sizes: list[int], padded: bool) -> None:
    result = LengthPlan(signature(X | {"pad": -1 if padded else None}, *DERIVED_INPUTS))
    groups = [run.rows for run in result.plan(rows(sizes))]
    assert sorted(int(row) for group in groups for row in group) == list(range(len(sizes)))
    for group in groups:
        assert list(group) == sorted(group)
        if not padded:
            assert len({sizes[row] for row in group}) == 1


@given(lengths, st.booleans())
def test_each_run_has_padded_tensors_masks_and_lengths(sizes: list[int], padded: bool) -> None:
    declared = signature(X | {"pad": -1 if padded else None}, *DERIVED_INPUTS, {"tensor": "k", "dtype": "int64", "value": 7})
    tensors, assembler = rows(sizes), InputAssembler(declared)
    for run in LengthPlan(declared).plan(tensors):
        group = run.rows
        inputs = assembler.all_tensors({"x": tensors["x"][group]})
        longest = max(sizes[row] for row in group)
        assert inputs["x"].shape == (len(group), bucket(longest, 600) if padded else longest)
        assert inputs["x"].dtype == np.float32
        assert inputs["n"].tolist() == [sizes[row] for row in group]
        assert (inputs["k"] == 7).all()
        assert (inputs["m"].sum(axis=1) == inputs["n"]).all()
        for at, row in enumerate(group):
            assert (inputs["x"][at, : sizes[row]] == row + 1).all()
            assert (inputs["x"][at, sizes[row] :] == -1).all()
            assert inputs["m"][at, : sizes[row]].all()


@given(lengths)
def test_answers_are_in_the_order_of_the_events(sizes: list[int]) -> None:
    """A model that sums the unmasked values returns for each event the answer that it has alone."""
    declared = signature(X, *DERIVED_INPUTS)
    assembler = InputAssembler(declared)
    shapes = []

    def run(tensors: dict[str, NDArray[Any]], steps: int) -> dict[str, NDArray[Any]]:
        fed = assembler.all_tensors(tensors)
        assert fed["x"].size == steps or not fed["x"].size
        shapes.append(fed["x"].shape)
        return {"y": (fed["x"] * fed["m"]).sum(axis=1)}

    result = run_all(LengthPlan(declared).plan(rows(sizes)), rows(sizes), run)["y"]
    assert result.tolist() == [size * (at + 1) for at, size in enumerate(sizes)]
    assert len({length for _, length in shapes}) == len(shapes) or sum(b * n for b, n in shapes) > MAX_STEPS // 2


def test_a_run_has_a_bound() -> None:
    result = LengthPlan(signature(X)).plan(rows([512] * 100))
    assert [len(run.rows) for run in result] == [MAX_STEPS // 512] * 3 + [4]
    wide = signature(X | {"shape": [-1, 1_000], "fields": [FIELD | {"max_length": 1_000}]})
    tensors = {"x": ragged((np.zeros((100, 1_000), np.float32) for _ in range(100)), 100)}
    max_rows = MAX_ELEMENTS // (bucket(100, 1_000) * 1_000)
    assert Counter(len(run.rows) for run in LengthPlan(wide).plan(tensors))[max_rows] == 100 // max_rows
    image = {"tensor": "i", "dtype": "uint8", "shape": [1_000, 1_000], "fields": [{"name": "i", "array": True}]}
    assert [len(run.rows) for run in LengthPlan(signature(X, image)).plan(rows([5] * 5))] == [4, 1]
    assert [
        len(run.rows)
        for run in LengthPlan(signature(X | {"fields": [FIELD | {"max_length": 1 << 20}]})).plan(rows([1 << 20] * 2))
    ] == [1, 1]


def test_a_run_may_have_a_smaller_bound() -> None:
    result = LengthPlan(signature(X)).plan(rows([512, 5, 512, 6]), 1_000)
    assert [(run.rows.tolist(), run.steps) for run in result] == [([1, 3], 16), ([0], 512), ([2], 512)]


def test_any_axis_and_any_dtype() -> None:
    declared = signature(
        X | {"shape": [2, -1, 3], "dtype": "string", "pad": "-"},
        {"tensor": "m", "dtype": "float16", "mask_of": "x", "shape": [1, 1, -1]},
        {"tensor": "n", "dtype": "uint16", "length_of": "x", "shape": [1]},
    )
    row = np.array(list("abcdef"), object).reshape(2, 1, 3)
    result = InputAssembler(declared).all_tensors({"x": ragged([row, np.empty((2, 0, 3), object)], 2)})
    assert result["x"].shape == (2, 2, SMALLEST_BUCKET, 3)
    assert result["x"][0, :, 0].tolist() == [["a", "b", "c"], ["d", "e", "f"]]
    assert set(result["x"][1].ravel()) | set(result["x"][0, :, 1:].ravel()) == {"-"}
    assert (result["m"].dtype.name, result["m"].shape) == ("float16", (2, 1, 1, SMALLEST_BUCKET))
    assert (result["n"].dtype.name, result["n"].tolist()) == ("uint16", [[1], [0]])


def test_two_axes_have_separate_lengths() -> None:
    other = X | {"tensor": "z", "axis": "other", "fields": [FIELD | {"name": "z"}]}
    declared = signature(X, other, {"tensor": "m", "dtype": "bool", "mask_of": "z"})
    tensors = rows([3, 300, 3]) | {"z": ragged((np.ones(size, np.float32) for size in (100, 4, 97)), 3)}
    result = LengthPlan(declared)
    assert result.mismatches(tensors) == {}
    assert [run.rows.tolist() for run in result.plan(tensors)] == [[0, 2], [1]]
    dense = result.pad({name: tensor[[0, 2]] for name, tensor in tensors.items()})
    assert (dense["x"].shape, dense["z"].shape, dense["m"].sum(axis=1).tolist()) == ((2, 8), (2, 128), [100, 97])


def test_rows_that_should_have_one_length() -> None:
    declared = signature(X, X | {"tensor": "z", "fields": [FIELD | {"name": "z"}]})
    tensors = rows([3, 4]) | {"z": ragged([np.zeros(3), np.zeros(5)], 2)}
    assert LengthPlan(declared).mismatches(tensors) == {
        1: "fields 'x' and 'z' have the lengths 4 and 5; one length for both was expected"
    }


def test_neutral_rows_have_the_largest_length() -> None:
    declared = signature(X, *DERIVED_INPUTS)
    assert InputAssembler(declared).all_tensors(neutral_rows(declared))["x"].shape == (1, 600)


def test_outputs_of_two_shapes_are_refused() -> None:
    runs = LengthPlan(signature(X)).plan(rows([3, 100]))
    with pytest.raises(ValueError, match=r"output 'y' has the shapes \(B, 8\) and \(B, 128\) for two events"):
        run_all(runs, rows([3, 100]), lambda fed, _: {"y": InputAssembler(signature(X)).all_tensors(fed)["x"]})
    with pytest.raises(ValueError, match=r"output 'y' has shape \(2,\), not one row for each of 1 events"):
        run_all(runs, rows([3, 100]), lambda *_: {"y": np.zeros(2)})
