"""The document of a comparison, as the console reads it."""

import pytest

from publisher.errors import Fatal
from tests.unit.training.validation_gate.test_verdict_of_numbers import NumberHoldOut, judged
from training.pipeline.evaluate_steps import shown_comparison


def test_comparison_of_numbers_is_shown_and_too_large_numbers_are_refused() -> None:
    hold_out = NumberHoldOut(a_day=200)
    comparison = shown_comparison(judged(hold_out.evidence(hold_out.scores(15), hold_out.scores(15))))
    assert comparison.metric == "rmse"
    huge_hold_out = NumberHoldOut(a_day=200, unit=1e17)
    with pytest.raises(Fatal, match="the comparison is no valid document") as raised:
        shown_comparison(judged(huge_hold_out.evidence(huge_hold_out.scores(15), huge_hold_out.scores(15))))
    assert raised.value.exit_code == 3
    assert "above 1e15" in raised.value.hint
