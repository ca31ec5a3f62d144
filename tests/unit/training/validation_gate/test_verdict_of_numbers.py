"""The verdict on versions that predict a number: every rule by a hold-out that breaks it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.unit.training.hold_out import DAY, DIGESTS, rows
from training.settings import GateSection
from training.snapshot.target import PredictionInterval, Target
from training.validation_gate.comparison import GateComparison
from training.validation_gate.inputs import VerdictEvidence, Version
from training.validation_gate.metrics import ModelAnswers
from training.validation_gate.verdict import judge

TARGET = Target("regression")
UPPER = Target("regression", quantile=0.9)
INTERVAL = Target("regression", interval=PredictionInterval("low", "high", 0.8))
NORMAL_80 = 1.2816  # 80 % of a normal distribution are within this many standard deviations
Scores = NDArray[np.float64]


class NumberHoldOut:
    """Events over 14 days, each with a number of minutes."""

    def __init__(self, a_day: int = 4_000, unit: float = 1.0) -> None:
        self.random = np.random.default_rng(3)
        self.count = 14 * a_day
        self.times = np.repeat(np.arange(14), a_day) * DAY + self.random.integers(0, DAY, self.count)
        self.predictable = unit * self.random.normal(20, 30, self.count)
        self.outcomes = self.predictable + unit * self.random.normal(0, 15, self.count)
        self.unit = unit

    def scores(self, noise: float) -> Scores:
        """Return predictions of a version whose own error has this standard deviation."""
        return self.predictable + self.unit * noise * self.random.normal(size=self.count)

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


def version(name: str, scores: Scores, intervals: Scores | None = None) -> Version:
    answers = ModelAnswers(scores, np.zeros(len(scores), np.intp), intervals)
    return Version(name, DIGESTS[name], answers, 7 if name == "champion" else None)


def of_target(target: Target, evidence: VerdictEvidence) -> VerdictEvidence:
    return replace(evidence, rows=replace(evidence.rows, target=target))


def with_intervals(hold_out: "NumberHoldOut", champion: float | None, challenger: float) -> VerdictEvidence:
    """Return two versions with equal scores, and intervals of so many standard deviations; None for no intervals."""
    scores = hold_out.predictable
    evidence = hold_out.evidence(scores, scores)
    champion_version, challenger_version = (
        version(name, scores, None if reach is None else np.column_stack([scores - 15 * reach, scores + 15 * reach]))
        for name, reach in (("champion", champion), ("challenger", challenger))
    )
    return of_target(INTERVAL, replace(evidence, champion=champion_version, challenger=challenger_version))


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
    judged_slice = next(candidate for candidate in comparison.slices if candidate.value == "US")
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


def test_quantiles_are_compared_by_their_loss_and_not_by_the_typical_error() -> None:
    hold_out = NumberHoldOut()
    upper, mean = hold_out.predictable + 15 * NORMAL_80, hold_out.predictable
    better = judged(of_target(UPPER, hold_out.evidence(mean, upper)), promote="better")
    assert (better.verdict, better.metric) == ("passed", "quantile_loss")
    assert [rule.name for rule in better.rules][5:] == ["differs", "width", "quantile_loss", "slices"]
    assert better.champion is not None
    assert better.champion.metrics["mae"] < better.challenger.metrics["mae"]
    worse = judged(of_target(UPPER, hold_out.evidence(upper, mean)))
    assert failed(worse) == ["quantile_loss"]
    first = of_target(UPPER, hold_out.evidence(None, upper))
    assert judged(first).verdict == "passed"
    constant = of_target(UPPER, hold_out.evidence(None, np.full(hold_out.count, float(np.quantile(hold_out.outcomes, 0.9)))))
    assert failed(judged(constant)) == ["chance"]


@pytest.mark.parametrize("reach", [0.3, 4.0])
def test_intervals_that_are_too_narrow_or_too_wide_are_worse(reach: float) -> None:
    hold_out = NumberHoldOut()
    better = judged(with_intervals(hold_out, reach, NORMAL_80), metric="interval_score", promote="better")
    assert (better.verdict, failed(better)) == ("passed", [])
    assert failed(judged(with_intervals(hold_out, NORMAL_80, reach), metric="interval_score")) == ["interval_score"]
    coverage = better.challenger.interval_coverage
    assert coverage is not None
    assert coverage.low < 0.8 < coverage.high
    assert better.challenger.metrics["interval_coverage"] == coverage.value


def test_versions_whose_intervals_alone_differ_are_not_the_same() -> None:
    hold_out = NumberHoldOut(a_day=400)
    assert judged(with_intervals(hold_out, 1.0, 1.0)).verdict == "same"
    assert judged(with_intervals(hold_out, 1.0, 1.1)).rules[5].passed
    assert judged(with_intervals(hold_out, None, 1.0)).rules[5].passed


def test_champion_without_intervals_cannot_be_compared_by_their_score() -> None:
    evidence = with_intervals(NumberHoldOut(a_day=400), None, NORMAL_80)
    comparison = judged(evidence, metric="interval_score")
    assert failed(comparison) == ["width"]
    assert "interval_score is unknown: there are too few rows, or a version has no outputs of evaluation.interval" in (
        comparison.because
    )
    assert comparison.champion is not None
    assert comparison.champion.interval_coverage is None
    assert "interval_coverage" not in comparison.to_dict()["champion"]
    assert judged(evidence).metric == "rmse"


def test_slice_with_worse_intervals_is_named() -> None:
    hold_out = NumberHoldOut()
    evidence = with_intervals(hold_out, NORMAL_80, NORMAL_80 * 1.001)
    carrier = np.where(np.arange(hold_out.count) % 25 == 0, "US", "UA")
    assert evidence.challenger.scored.intervals is not None
    evidence.challenger.scored.intervals[carrier == "US"] += 40
    lenient = {"metric": "interval_score", "margin": 0.5, "slices": ["carrier"]}
    comparison = judged(replace(evidence, slices={"carrier": carrier}), **lenient)
    assert failed(comparison) == ["slices"]
    assert "where carrier is 'US'" in comparison.because
