"""The constant answer while model servers are unavailable: its shape, and the accepted settings."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from scorer.models.constant_fallback import ConstantFallback, shape_difference
from scorer.settings.model import FallbackSettings, ModelSettings

numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(1 << 53), 1 << 53)
rows = st.lists(numbers, min_size=1, max_size=4)
scores = st.recursive(numbers | st.text(), lambda inner: st.lists(inner, min_size=1, max_size=1)) | st.dictionaries(
    st.text(max_size=3), rows, min_size=1
)


@given(scores)
def test_a_score_has_its_own_shape_and_is_the_answer_of_each_event(score: Any) -> None:
    assert shape_difference(score, score, lengths=True) is None
    constant = ConstantFallback.of(FallbackSettings(score=score, decision="review"))
    assert constant is not None
    answer = constant.answer(3)
    assert (len(set(answer.scores)), len(answer.scores), list(answer.decisions)) == (1, 3, ["review"] * 3)


@given(rows, numbers)
def test_arrays_of_another_length_are_another_shape_unless_lengths_are_open(row: list[float], number: float) -> None:
    assert shape_difference([*row, number], row, lengths=True) == f"score has to be an array of {len(row)}"
    assert shape_difference([*row, number], row, lengths=False) is None
    assert shape_difference(number, row, lengths=False) == "score has to be an array"


@pytest.mark.parametrize(
    ("score", "example", "message"),
    [
        ([0.5], 0.5, "score has to be a number"),
        (0.5, "cat", "score has to be a string"),
        ("cat", 0.5, "score has to be a number"),
        ({"a": [1.0]}, {"b": [1.0]}, "score has to be an object with b"),
        ({"a": [1.0, "x"]}, {"a": [1.0, 2.0]}, "score.a[1] has to be a number"),
        ([[1.0], [1.0, 2.0]], [[1.0], [2.0]], "score[1] has to be an array of 1"),
    ],
)
def test_a_difference_of_shape_is_named(score: Any, example: Any, message: str) -> None:
    assert shape_difference(score, example, lengths=True) == message


@pytest.mark.parametrize("score", [float("nan"), [1.0, float("inf")], True, {"a": None}, [], {}, [0.0] * 10_001])
def test_fallback_score_that_is_not_a_score_is_rejected(score: Any) -> None:
    with pytest.raises(ValidationError, match="score"):
        FallbackSettings(score=score)


def test_fallback_needs_model_servers_and_decision_needs_score() -> None:
    with pytest.raises(ValidationError, match="onnx-runtime runs in the scorer"):
        ModelSettings(source="oci:./r", fallback=FallbackSettings(score=0))
    with pytest.raises(ValidationError, match="set score too"):
        FallbackSettings(decision="review")
    assert ConstantFallback.of(FallbackSettings()) is None
    assert FallbackSettings.model_validate(FallbackSettings().model_dump()) == FallbackSettings()
