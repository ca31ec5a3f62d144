"""A score must not depend on the other events of its batch: the result of the probe for several models."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from model_registry.errors import Refused
from model_registry.package import batch_probe
from model_registry.package.model_inputs import InputAssembler, Tensors, ragged
from model_registry.package.signature import Signature
from model_registry.package.signature_schema import parse_signature

Arrays = dict[str, Any]
Model = Callable[[Arrays], Any]
WEIGHTS = np.arange(4, dtype=np.float32)
FOUR = {"tensor": "x", "dtype": "float32", "fields": ["a", "b", "c", "d"]}
X = {
    "tensor": "x",
    "dtype": "float32",
    "shape": [-1],
    "pad": 0,
    "fields": [{"name": "x", "array": True, "max_length": 64}],
}
EXACT = {key: value for key, value in X.items() if key != "pad"}
MASK = {"tensor": "mask", "dtype": "bool", "mask_of": "x"}
ONE_EVENT, THREE_EVENTS = [[1, 2, 3, 4]], [[1, 2, 3, 4], [5, 6, 7, 8], [0, 1, 0, 1]]


class Fails(Exception):
    """The model does not answer."""


def signature(*inputs: dict[str, Any], **more: Any) -> Signature:
    return parse_signature(json.dumps({"inputs": inputs, "output": {"tensor": "y"}, **more}))


def fixed(*rows: Any) -> Tensors:
    return {"x": np.array(rows, np.float32)}


def varying(*rows: list[float]) -> Tensors:
    return {"x": ragged((np.array(row, np.float32) for row in rows), len(rows))}


def probe(
    stated: Signature, golden: Tensors | None, model: Model, clock: Callable[[], float] = lambda: 0.0, **more: Any
) -> list[int]:
    """Run the probe and return the sizes of its runs."""
    sizes = []

    def run(tensors: Tensors) -> dict[str, Any]:
        feeds = InputAssembler(stated).all_tensors(tensors)
        sizes.append(len(next(iter(tensors.values()))))
        return {"y": np.asarray(model(feeds))}

    batch_probe.check_batch_independence(stated, golden, run, Fails, clock=clock, **more)
    return sizes


def linear(feeds: Arrays) -> Any:
    return feeds["x"] @ WEIGHTS


def centred(feeds: Arrays) -> Any:
    return (feeds["x"] - feeds["x"].mean(axis=0)) @ WEIGHTS


def running_sum(feeds: Arrays) -> Any:
    return np.cumsum(feeds["x"] @ WEIGHTS)


def quantised(feeds: Arrays) -> Any:
    """Quantise dynamically, with 255 steps over the range of the whole batch."""
    step = np.abs(feeds["x"]).max() / 127
    return np.round(feeds["x"] / step) * step @ WEIGHTS


def masked_mean(feeds: Arrays) -> Any:
    with np.errstate(invalid="ignore"):
        return (feeds["x"] * feeds["mask"]).sum(axis=1) / feeds["mask"].sum(axis=1)


def masked_mean_of_padding(feeds: Arrays) -> Any:
    """Return the mean of the values that the mask does not mark."""
    return masked_mean({"x": feeds["x"], "mask": ~feeds["mask"]})


@pytest.mark.parametrize("golden", [fixed(*ONE_EVENT), fixed(*THREE_EVENTS), None], ids=["one", "three", "none"])
def test_a_model_that_scores_events_one_by_one_passes(golden: Tensors | None) -> None:
    assert probe(signature(FOUR), golden, linear)


@pytest.mark.parametrize("model", [centred, running_sum])
@pytest.mark.parametrize("golden", [fixed(*ONE_EVENT), fixed(*THREE_EVENTS), None], ids=["one", "three", "none"])
def test_a_score_that_depends_on_other_events_is_refused_with_the_difference_and_the_remedy(
    model: Model, golden: Tensors | None
) -> None:
    with pytest.raises(
        Refused, match=r"depends on its batch: .* alone, but .* beside other events; the largest diff"
    ) as caught:
        probe(signature(FOUR), golden, model)
    assert '"batch": false' in str(caught.value.hint)
    assert '{"tensor": "x", "shape": [1, 4], "batch": false}' in str(caught.value.hint)
    assert "batch_tolerance" in str(caught.value.hint)


def test_one_event_at_a_time_is_right_for_a_model_of_a_series() -> None:
    alone = signature({**FOUR, "shape": [1, 4], "batch": False})
    assert probe(alone, fixed(*THREE_EVENTS), running_sum)


def test_dynamic_quantisation_is_refused_unless_the_signature_accepts_its_difference() -> None:
    golden = fixed([0.11, 0.22, 0.31, 0.4], [5, 6, 7, 8])
    with pytest.raises(Refused, match="the largest difference is"):
        probe(signature(FOUR), golden, quantised)
    assert probe(signature(FOUR, batch_tolerance=0.5), golden, quantised)
    with pytest.raises(Refused, match=r"but at most 0\.001 is allowed"):
        probe(signature(FOUR, batch_tolerance=0.001), golden, quantised)


def test_rounding_by_another_batch_size_is_no_difference() -> None:
    def rounded(feeds: Arrays) -> Any:
        return (feeds["x"] @ WEIGHTS) * np.float32(1 + 1e-6 * len(feeds["x"]))

    assert probe(signature(FOUR), fixed(*THREE_EVENTS), rounded)


def test_a_device_may_round_as_float16_does() -> None:
    def coarse(feeds: Arrays) -> Any:
        return (feeds["x"] @ WEIGHTS) * np.float32(1 + 1e-4 * len(feeds["x"]))

    assert probe(signature(FOUR), fixed(*THREE_EVENTS), coarse, rounds_coarsely=True)
    with pytest.raises(Refused, match="depends on its batch"):
        probe(signature(FOUR), fixed(*THREE_EVENTS), coarse)


def test_no_batch_is_larger_than_those_that_are_served() -> None:
    assert max(probe(signature(FOUR), fixed(*THREE_EVENTS), linear, max_rows=2)) == 2
    assert max(probe(signature(FOUR), fixed(*THREE_EVENTS), centred, max_rows=1)) == 1
    long = {**X, "fields": [{"name": "x", "array": True, "max_length": 1 << 15}]}
    rows = varying([1.0] * 6000, [2.0] * 7000)
    assert max(probe(signature(long, MASK), rows, masked_mean)) == 2


def test_a_text_of_another_event_is_refused() -> None:
    def largest(feeds: Arrays) -> Any:
        return np.array([f"class {feeds['x'].argmax()}"] * len(feeds["x"]), object)

    with pytest.raises(Refused, match=r"scores 'class 3' alone, but 'class \d+'"):
        probe(signature(FOUR), fixed(*THREE_EVENTS), largest)


def test_whole_numbers_are_equal_unless_the_signature_accepts_a_difference() -> None:
    def numbered(feeds: Arrays) -> Any:
        return np.full(len(feeds["x"]), 70_000 + len(feeds["x"]))

    with pytest.raises(Refused, match=r"scores '70001' alone, but '700\d+' beside other events; .* but at most 0 is allowed"):
        probe(signature(FOUR), fixed(*THREE_EVENTS), numbered)
    assert probe(signature(FOUR, batch_tolerance=20), fixed(*THREE_EVENTS), numbered)


def test_a_model_that_gives_two_answers_to_one_event_is_refused() -> None:
    random = np.random.default_rng(0)
    for stated in (signature(FOUR), signature({**FOUR, "shape": [1, 4], "batch": False})):
        with pytest.raises(Refused, match="two different answers to the same event"):
            probe(stated, fixed(*ONE_EVENT), lambda feeds: random.random(np.atleast_2d(feeds["x"]).shape[0]))


def test_a_model_that_answers_one_event_only_is_refused_with_its_error_and_the_remedy() -> None:
    def single(feeds: Arrays) -> Any:
        if len(feeds["x"]) > 1:
            raise Fails("cannot reshape {8} to {1,4}")
        return linear(feeds)

    with pytest.raises(Refused, match=r"answers one event at a time, but not 3 events together: cannot reshape") as caught:
        probe(signature(FOUR), fixed(*ONE_EVENT), single)
    assert '"batch": false' in str(caught.value.hint)


def test_variations_that_a_model_cannot_answer_are_omitted() -> None:
    def strict(feeds: Arrays) -> Any:
        if (feeds["x"] % 1).any():
            raise Fails("no whole number")
        return linear(feeds)

    assert max(probe(signature(FOUR), fixed(*THREE_EVENTS), strict)) > 1


@pytest.mark.parametrize("factor", batch_probe.FACTORS)
def test_no_other_number_becomes_zero(factor: float) -> None:
    integers = signature({**FOUR, "dtype": "int64"})
    rows = {"x": np.array([[1, -1, 7, 0]])}
    caught = batch_probe._varied(integers, rows, factor)["x"]
    assert ((caught == 0) == (rows["x"] == 0)).all()


@pytest.mark.parametrize(
    ("marks", "model"), [("values", masked_mean), ("padding", masked_mean_of_padding)], ids=["values", "padding"]
)
def test_a_mask_marks_values_or_padding(marks: str, model: Model) -> None:
    right = signature(X, {**MASK, "marks": marks})
    assert probe(right, varying([1, 3], [2, 4, 9]), model)
    opposite = signature(X, {**MASK, "marks": {"values": "padding", "padding": "values"}[marks]})
    with pytest.raises(Refused, match="padded to the length of others") as caught:
        probe(opposite, varying([1, 3], [2, 4, 9]), model)
    assert "\"marks\" of mask 'mask'" in str(caught.value.hint)


@pytest.mark.parametrize("golden", [varying([4]), varying([1] * 64), varying([1, 1, 1, 5], [4]), None])
def test_a_model_that_counts_padding_is_refused_and_right_at_exact_lengths(golden: Tensors | None) -> None:
    def mean(feeds: Arrays) -> Any:
        return feeds["x"].mean(axis=1)

    with pytest.raises(Refused, match="padded to the length of others") as caught:
        probe(signature(X), golden, mean)
    assert 'remove "pad"' in str(caught.value.hint)
    assert probe(signature(EXACT), golden, mean)


def test_padding_is_compared_with_the_exact_length_if_one_bucket_has_all_lengths() -> None:
    short = {**X, "fields": [{"name": "x", "array": True, "max_length": 8}]}
    with pytest.raises(Refused, match="padded to the length of others"):
        probe(signature(short), varying([1, 2], [3, 4]), lambda feeds: feeds["x"].mean(axis=1))


def test_events_of_one_length_that_depend_on_each_other_are_distinguished_from_padding() -> None:
    def centred_mean(feeds: Arrays) -> Any:
        mean = masked_mean(feeds)
        return mean - mean.mean()

    for inputs in ((X, MASK), (EXACT, MASK)):
        with pytest.raises(Refused, match="beside other events"):
            probe(signature(*inputs), varying([1, 3], [2, 4, 9]), centred_mean)


def test_an_event_that_is_too_short_without_padding_is_compared_as_it_is_served() -> None:
    def window(feeds: Arrays) -> Any:
        if feeds["x"].shape[1] < 4:
            raise Fails("the window has 4 steps")
        return feeds["x"].sum(axis=1)

    assert probe(signature(X), varying([1, 3]), window)


@pytest.mark.parametrize("golden", [varying([1, 3], [2, 4, 9]), None], ids=["golden", "none"])
@pytest.mark.parametrize("inputs", [X, EXACT, {**EXACT, "shape": [1, -1], "batch": False}], ids=["padded", "exact", "alone"])
def test_a_model_with_fewer_positions_than_the_largest_length_is_refused(inputs: dict[str, Any], golden: Any) -> None:
    def positions(count: int) -> Model:
        def model(feeds: Arrays) -> Any:
            if feeds["x"].shape[1] > count:
                raise Fails(f"index {count} is out of bounds")
            return feeds["x"].sum(axis=1)

        return model

    if golden and "batch" in inputs:
        golden = {"x": ragged([row.reshape(1, -1) for row in golden["x"]], 2)}
    with pytest.raises(Refused, match="does not answer an event of the largest length, 64: index 40") as caught:
        probe(signature(inputs), golden, positions(40))
    assert "max_length" in str(caught.value.hint)
    assert probe(signature(inputs), golden, positions(64))


@pytest.mark.parametrize("length", [16, 64])
def test_a_model_that_answers_one_length_only_is_refused_without_golden_examples_of_another(length: int) -> None:
    def frozen(feeds: Arrays) -> Any:
        if feeds["x"].shape[1] != length:
            raise Fails(f"{length} by {feeds['x'].shape[1]}")
        return feeds["x"].sum(axis=1)

    inputs = {**EXACT, "fields": [{"name": "x", "array": True, "max_length": length}]}
    with pytest.raises(Refused, match=f"does not answer generated events that are shorter than the largest length, {length}"):
        probe(signature(inputs), None, frozen)
    assert probe(signature(inputs), varying([1.0] * length), frozen)


def test_several_lengths_share_a_run_only_where_they_are_padded() -> None:
    other = {**EXACT, "tensor": "z", "axis": "other", "fields": [{"name": "z", "array": True, "max_length": 64}]}
    rows = varying([1, 3], [2, 4, 9]) | {"z": varying([1], [1, 2])["x"]}
    assert probe(signature(X, other), rows, lambda feeds: feeds["x"].sum(axis=1) + feeds["z"].sum(axis=1))
    rows = varying([1, 3], [2, 4, 9]) | {"z": varying([1], [1])["x"]}
    assert max(probe(signature(X, other), rows, lambda feeds: feeds["x"].sum(axis=1) + feeds["z"].sum(axis=1))) > 5


def test_a_slow_model_is_compared_in_one_batch() -> None:
    now = iter(range(0, 10_000, 60))
    sizes = probe(signature(FOUR), fixed(*THREE_EVENTS), linear, lambda: float(next(now)))
    assert [size for size in sizes if size > 1] == [2]
    now = iter(range(0, 10_000, 60))
    with pytest.raises(Refused, match="depends on its batch"):
        probe(signature(FOUR), fixed(*THREE_EVENTS), centred, lambda: float(next(now)))


def test_a_probe_has_few_runs_and_few_events() -> None:
    assert sum(probe(signature(FOUR), fixed(*THREE_EVENTS * 50), linear)) <= 200
    assert sum(probe(signature(X, MASK), varying(*([1.0] * n for n in range(1, 60))), masked_mean)) <= 270
    assert sum(probe(signature(FOUR), fixed(*THREE_EVENTS), linear)) <= 30


SIX = [[1, 2, 3, 4], [5, 6, 7, 8], [0, 1, 0, 1], [2, 2, 2, 2], [9, 0, 0, 1], [3, 1, 3, 1]]


def fifth_depends(feeds: Arrays) -> Any:
    """Return linear scores, and another score for the fifth golden example beside other events."""
    fifth = (feeds["x"] == SIX[4]).all(axis=1)
    return linear(feeds) + np.where(fifth & (len(feeds["x"]) > 1), 1.0, 0.0)


@pytest.mark.parametrize("max_rows", [2, 3, 64])
def test_each_golden_example_is_compared(max_rows: int) -> None:
    with pytest.raises(Refused, match=r"golden example 5 scores .* beside other events;"):
        probe(signature(FOUR), fixed(*SIX), fifth_depends, max_rows=max_rows)


def test_further_golden_examples_are_run_in_the_first_half_of_the_time_only() -> None:
    now = 0.0

    def clock() -> float:
        return now

    def slow(feeds: Arrays) -> Any:
        nonlocal now
        now += 1.1
        return linear(feeds)

    # five events alone (5.5 s), one again, two batches: examples 2, 4 and 5 are not run
    assert probe(signature(FOUR), fixed(*SIX), slow, clock) == [1] * 6 + [5, 11]


def test_without_an_answer_there_is_nothing_to_compare() -> None:
    def fails(_: Arrays) -> Any:
        raise Fails

    probe(signature(FOUR), fixed(*ONE_EVENT), fails)
    probe(signature(FOUR), None, fails)


@pytest.mark.parametrize("value", [0, -1, True, "0.1", [0.1]])
def test_a_batch_tolerance_is_a_number_above_zero(value: Any) -> None:
    with pytest.raises(Refused, match=r"batch_tolerance: .* is not a number above 0"):
        signature(FOUR, batch_tolerance=value)


def test_a_signature_with_a_batch_tolerance_is_read_back() -> None:
    for stated in (signature(FOUR, batch_tolerance=0.02), signature(X, {**MASK, "marks": "padding"}), signature(X, MASK)):
        assert parse_signature(stated.to_json()) == stated


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"marks": "nothing"}, "marks: 'nothing' is neither values nor padding"),
        ({"mask_of": None, "length_of": "x", "marks": "padding"}, 'remove "marks"'),
    ],
)
def test_marks_are_for_masks(change: dict[str, Any], error: str) -> None:
    with pytest.raises(Refused, match=error):
        signature(X, {key: value for key, value in (MASK | change).items() if value is not None})
    with pytest.raises(Refused, match='"marks" is only for a mask'):
        signature({**X, "marks": "padding"})
