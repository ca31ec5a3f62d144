"""The verdict on versions that predict a number: every rule by a hold-out that breaks it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.unit.training.hold_out import DAY, DIGESTS, rows
from training.settings import GateSection
from training.snapshot.target import Target
from training.validation_gate.comparison import GateComparison
from training.validation_gate.inputs import VerdictEvidence, Version
from training.validation_gate.metrics import ModelAnswers
from training.validation_gate.verdict import judge

TARGET = Target("regression")
Scores = NDArray[np.float64]


class NumberHoldOut:
    """Events over 14 days, each with a number of minutes."""

    def __init__(self, a_day: int = 4_000, unit: float = 1.0) -> None:
        self.random = np.random.default_rng(3)
        self.count = 14 * a_day
        self.times = np.repeat(np.arange(14), a_day) * DAY + self.random.integers(0, DAY, self.count)
        self.known = unit * self.random.normal(20, 30, self.count)
        self.outcomes = self.known + unit * self.random.normal(0, 15, self.count)
        self.unit = unit

    def scores(self, noise: float) -> Scores:
        """Predictions of a version whose own error has this standard deviation."""
        return self.known + self.unit * noise * self.random.normal(size=self.count)

    def evidence(self, champion: Scores | None, challenger: Scores, **changes: Any) -> VerdictEvidence:
        labelled = replace(rows(np.zeros(self.count), self.times), outcomes=self.outcomes, target=TARGET)
        evidence = VerdictEvidence(
            "0123456789ab",
            labelled,
            self.times,
            version("challenger", challenger),
            None if champion is None else version("champion", champion),
            None if champion is None else 0,
        )
        return replace(evidence, **changes)


def version(name: str, scores: Scores) -> Version:
    return Version(name, DIGESTS[name], ModelAnswers(scores, np.zeros(len(scores), np.intp)), 7 if name == "champion" else None)


def judged(evidence: VerdictEvidence, **gate: Any) -> GateComparison:
    return judge(evidence, GateSection.model_validate(gate), 0.9, 2013)


def failed(comparison: GateComparison) -> list[str]:
    return [rule.name for rule in comparison.rules if not rule.passed]


@pytest.mark.parametrize("unit", [1.0, 1_000.0, 0.001])
def test_a_version_as_good_as_the_champion_passes_in_any_unit(unit: float) -> None:
    hold_out = NumberHoldOut(unit=unit)
    evidence = hold_out.evidence(hold_out.scores(0.5), hold_out.scores(0.5))
    comparison = judged(evidence)
    assert (comparison.verdict, failed(comparison), comparison.metric) == ("passed", [], "rmse")
    assert [rule.name for rule in comparison.rules][5:] == ["differs", "width", "rmse", "mae", "slices"]
    assert failed(judged(evidence, promote="better"))[0] == "rmse"
    rule = next(rule for rule in comparison.rules if rule.name == "rmse")
    assert comparison.champion is not None
    assert rule.bound == pytest.approx(0.01 * comparison.champion.metrics["rmse"])


@pytest.mark.parametrize("metric", ["rmse", "mae"])
def test_a_larger_error_is_refused_and_a_smaller_one_is_better(metric: str) -> None:
    hold_out = NumberHoldOut()
    worse = judged(hold_out.evidence(hold_out.scores(0.0), hold_out.scores(4.0)), metric=metric)
    assert failed(worse)[0] == metric
    assert judged(hold_out.evidence(hold_out.scores(4.0), hold_out.scores(0.0)), metric=metric, promote="better").verdict == (
        "passed"
    )


def test_a_worse_typical_error_is_refused_though_the_rmse_is_not() -> None:
    hold_out = NumberHoldOut()
    hold_out.outcomes[::100] += 2_000
    champion = hold_out.scores(0.1)
    comparison = judged(hold_out.evidence(champion, champion + hold_out.random.choice([-5, 5], hold_out.count)))
    assert failed(comparison) == ["mae"]
    assert "the typical error may be worse than the champion's: the difference in mae is +" in comparison.because


def test_too_few_rows_leave_the_question_open() -> None:
    hold_out = NumberHoldOut(a_day=60)
    comparison = judged(hold_out.evidence(hold_out.scores(5.0), hold_out.scores(5.0)))
    assert failed(comparison)[0] == "width"
    assert "raise gate.margin): the difference in rmse is" in comparison.because


def test_a_loss_in_one_slice_is_named_with_a_bound_in_the_unit_of_the_labels() -> None:
    hold_out = NumberHoldOut()
    champion, challenger = hold_out.scores(0.1), hold_out.scores(0.1)
    carrier = hold_out.random.choice(["UA", "AA", "US"], hold_out.count, p=[0.48, 0.48, 0.04])
    hit = np.flatnonzero(carrier == "US")
    challenger[hit] = hold_out.random.permutation(challenger[hit])
    lenient = {"margin": 0.5, "slices": ["carrier"]}
    comparison = judged(hold_out.evidence(champion, challenger, slices={"carrier": carrier}), **lenient)
    assert failed(comparison) == ["slices"]
    assert f"where carrier is 'US' ({len(hit):,} rows) the challenger is worse" in comparison.because
    rule = comparison.rules[-1]
    judged_slice = next(one for one in comparison.slices if one.value == "US")
    assert rule.bound == pytest.approx(0.03 * (judged_slice.scale or 0.0))
    assert rule.value == judged_slice.difference.value


def test_a_first_model_must_be_better_than_a_constant() -> None:
    hold_out = NumberHoldOut()
    first = judged(hold_out.evidence(None, hold_out.scores(0.5)))
    assert (first.verdict, first.challenger.confusion_matrix, first.discordant) == ("passed", None, None)
    constant = judged(hold_out.evidence(None, np.full(hold_out.count, 20.0)))
    assert (constant.verdict, failed(constant)) == ("refused", ["chance"])
    assert "no better than a constant prediction: the difference in rmse is" in constant.because


def test_the_document_has_the_residuals_of_both_versions_in_the_same_bins() -> None:
    hold_out = NumberHoldOut()
    comparison = judged(hold_out.evidence(hold_out.scores(0.5), hold_out.scores(3.0)))
    assert comparison.champion is not None
    residuals = [side.residuals for side in (comparison.champion, comparison.challenger)]
    assert all(histogram is not None and sum(histogram.counts) == hold_out.count for histogram in residuals)
    assert residuals[0] is not None
    assert residuals[1] is not None
    assert residuals[0].edges == residuals[1].edges
    assert len(residuals[0].edges) == len(residuals[0].counts) + 1
    assert "confusion_matrix" not in comparison.to_dict()["champion"]
    assert list(comparison.champion.metrics) == ["rmse", "mae", "r2"]
