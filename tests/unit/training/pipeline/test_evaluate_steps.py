"""The document of a comparison, as the console reads it."""

import pytest

from publisher.errors import Fatal
from tests.unit.training.validation_gate.test_verdict_of_numbers import NumberHoldOut, judged
from training.pipeline.evaluate_steps import shown_comparison


def test_comparison_of_numbers_is_shown_and_too_large_numbers_are_refused() -> None:
    held = NumberHoldOut(a_day=200)
    shown = shown_comparison(judged(held.evidence(held.scores(15), held.scores(15))))
    assert shown.metric == "rmse"
    huge = NumberHoldOut(a_day=200, unit=1e17)
    with pytest.raises(Fatal, match="the comparison is no valid document") as raised:
        shown_comparison(judged(huge.evidence(huge.scores(15), huge.scores(15))))
    assert raised.value.exit_code == 3
    assert "above 1e15" in raised.value.hint
