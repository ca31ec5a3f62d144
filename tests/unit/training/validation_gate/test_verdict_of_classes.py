"""The verdict on versions that choose among three classes: every rule by a hold-out that breaks it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from publisher.errors import Fatal
from tests.unit.training.hold_out import DAY, DIGESTS, rows
from training.settings import GateSection
from training.snapshot.target import Target
from training.validation_gate.comparison import GateComparison
from training.validation_gate.inputs import VerdictEvidence, Version
from training.validation_gate.metrics import ModelAnswers, decide
from training.validation_gate.verdict import judge

NAMES = ("on time", "late", "very late")
TARGET = Target("classes", NAMES)
SHARES = (0.7, 0.2, 0.1)
Scores = NDArray[np.float64]


class ClassHoldOut:
    """Events over 14 days in three classes."""

    def __init__(self, a_day: int = 4_000) -> None:
        self.random = np.random.default_rng(3)
        self.count = 14 * a_day
        self.times = np.repeat(np.arange(14), a_day) * DAY + self.random.integers(0, DAY, self.count)
        self.outcomes = self.random.choice(3, self.count, p=SHARES).astype(np.int16)
        self.hidden = self.random.normal(size=(self.count, 3)) + 3 * np.eye(3)[self.outcomes]

    def scores(self, noise: float) -> Scores:
        """Return the probabilities of a version that knows the outcomes with this noise."""
        logits = 3 * (self.hidden + noise * self.random.normal(size=(self.count, 3))) / (1 + noise**2)
        weights = np.array(SHARES) * np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def evidence(self, champion: Scores | None, challenger: Scores) -> VerdictEvidence:
        labelled = replace(rows(self.outcomes, self.times), outcomes=self.outcomes, target=TARGET)
        return VerdictEvidence(
            "0123456789ab",
            labelled,
            self.times,
            version("challenger", challenger),
            None if champion is None else version("champion", champion),
            None if champion is None else 0,
        )


def version(name: str, scores: Scores) -> Version:
    return Version(name, DIGESTS[name], ModelAnswers(scores, decide(TARGET, scores)), 7 if name == "champion" else None)


def judged(evidence: VerdictEvidence, **gate: Any) -> GateComparison:
    return judge(evidence, GateSection.model_validate(gate), 0.9, 2013)


def failed(comparison: GateComparison) -> list[str]:
    return [rule.name for rule in comparison.rules if not rule.passed]


def test_a_version_as_good_as_the_champion_passes_and_is_not_called_better() -> None:
    hold_out = ClassHoldOut()
    evidence = hold_out.evidence(hold_out.scores(0.05), hold_out.scores(0.05))
    comparison = judged(evidence)
    assert (comparison.verdict, failed(comparison), comparison.metric) == ("passed", [], "log_loss")
    assert comparison.because.startswith("no rule failed: the difference in log_loss is ")
    assert failed(judged(evidence, promote="better"))[0] == "log_loss"
    figures = ("recall", "precision")
    names = [f"{figure}.{name}" for figure in figures for name in NAMES]
    assert [rule.name for rule in comparison.rules][6:] == ["width", "log_loss", *names, "brier", "slices"]
    assert comparison.challenger.confusion_matrix is not None
    assert comparison.challenger.confusion_matrix.labels == NAMES


def test_a_smaller_log_loss_is_better_and_a_larger_one_is_refused() -> None:
    hold_out = ClassHoldOut()
    evidence = hold_out.evidence(hold_out.scores(0.5), hold_out.scores(0.0))
    assert judged(evidence, promote="better", margin=0.05).verdict == "passed"
    worse = judged(hold_out.evidence(hold_out.scores(0.0), hold_out.scores(0.5)))
    assert failed(worse)[0] == "log_loss"
    rule = next(rule for rule in worse.rules if rule.name == "log_loss")
    assert worse.difference is not None
    assert (rule.value, rule.bound) == (worse.difference.high, 0.002)
    assert worse.because.startswith("rule log_loss (")


@pytest.mark.parametrize("metric", ["macro_f1", "accuracy"])
def test_other_metrics_of_classes_decide_too(metric: str) -> None:
    hold_out = ClassHoldOut()
    gate = {"metric": metric, "margin": 0.02}
    worse = judged(hold_out.evidence(hold_out.scores(0.0), hold_out.scores(1.0)), **gate)
    assert (failed(worse)[0], worse.difference is not None and worse.difference.high < 0) == (metric, True)
    equal = judged(hold_out.evidence(hold_out.scores(0.05), hold_out.scores(0.05)), **gate)
    assert equal.verdict == "passed"


def test_a_metric_of_another_target_is_refused_with_the_possible_ones() -> None:
    hold_out = ClassHoldOut(a_day=10)
    with pytest.raises(Fatal, match=r"gate\.metric is 'auc', but the labels are 3 classes") as refused:
        judged(hold_out.evidence(None, hold_out.scores(0.0)), metric="auc")
    assert "log_loss, macro_f1, accuracy" in refused.value.hint


def test_a_class_that_is_recalled_less_is_refused_though_the_log_loss_is_not() -> None:
    hold_out = ClassHoldOut()
    champion = hold_out.scores(0.0)
    evidence = hold_out.evidence(champion, champion * (1 - 1e-9))
    decisions = evidence.challenger.scored.decisions.copy()
    close = np.flatnonzero((decisions == 2) & (champion[:, 2] < 0.8))
    decisions[close] = champion[close, :2].argmax(axis=1)
    answers = evidence.challenger.scored._replace(decisions=decisions)
    comparison = judged(replace(evidence, challenger=replace(evidence.challenger, scored=answers)))
    assert failed(comparison)[0] == "recall.very late"


def test_a_rare_class_fails_only_if_it_is_shown_to_be_worse() -> None:
    hold_out = ClassHoldOut(a_day=400)
    equal = judged(hold_out.evidence(hold_out.scores(0.3), hold_out.scores(0.3)), margin=0.03)
    wide = next(rule for rule in equal.rules if rule.name == "recall.very late")
    assert wide.difference is not None
    assert (wide.passed, wide.difference.low < -0.01) == (True, True)
    evidence = hold_out.evidence(hold_out.scores(0.3), hold_out.scores(0.3))
    decisions = evidence.challenger.scored.decisions.copy()
    decisions[np.flatnonzero(decisions == 2)[::4]] = 1
    answers = evidence.challenger.scored._replace(decisions=decisions)
    worse = judged(replace(evidence, challenger=replace(evidence.challenger, scored=answers)), margin=0.03)
    assert failed(worse)[0] == "recall.very late"
    assert "a class is worse than with the champion: the difference in recall.very late is -" in worse.because


def test_scores_that_are_no_probabilities_need_another_metric() -> None:
    hold_out = ClassHoldOut()
    evidence = hold_out.evidence(hold_out.scores(0.0), hold_out.scores(0.0) * 5)
    comparison = judged(evidence)
    assert (failed(comparison), "scores are not probabilities" in comparison.because) == (["width"], True)
    assert judged(evidence, metric="macro_f1").verdict == "passed"


def test_a_first_model_must_be_better_than_the_shares_of_the_classes() -> None:
    hold_out = ClassHoldOut()
    first = judged(hold_out.evidence(None, hold_out.scores(0.3)))
    assert (first.verdict, first.champion, first.discordant) == ("passed", None, None)
    assert first.because == f"the first model is better than a constant prediction, by log_loss, on {hold_out.count:,} rows"
    constant = judged(hold_out.evidence(None, np.tile(SHARES, (hold_out.count, 1))))
    assert (constant.verdict, failed(constant)) == ("refused", ["chance"])
    often = np.tile([0.98, 0.01, 0.01], (hold_out.count, 1))
    assert failed(judged(hold_out.evidence(None, often), metric="macro_f1")) == ["chance"]


def test_of_many_classes_only_those_that_fail_are_listed() -> None:
    drawn = np.random.default_rng(1)
    names = tuple(f"c{at}" for at in range(30))
    target = Target("classes", names)
    count = 28_000
    times = np.repeat(np.arange(14), 2_000) * DAY
    outcomes = (np.arange(count) % 30).astype(np.int16)
    champion, challenger = (
        np.where(drawn.random((count, 1)) < 0.9, np.eye(30)[outcomes], np.eye(30)[drawn.integers(0, 30, count)]) for _ in "12"
    )
    labelled = replace(rows(outcomes, times), outcomes=outcomes, target=target)

    def versions(scores: Scores) -> ModelAnswers:
        return ModelAnswers(scores, decide(target, scores))

    def judged_with(scores: Scores) -> GateComparison:
        sides = Version("b", DIGESTS["challenger"], versions(scores)), Version("a", DIGESTS["champion"], versions(champion), 7)
        return judged(VerdictEvidence("run", labelled, times, *sides, 0), metric="macro_f1", margin=0.05)

    equal = judged_with(challenger)
    assert (equal.verdict, [rule.name for rule in equal.rules][8:]) == ("passed", ["classes", "brier", "slices"])
    assert not any("." in name for name in equal.challenger.metrics)
    blind = challenger.copy()
    blind[outcomes == 7] = np.eye(30)[8]
    assert [rule for rule in failed(judged_with(blind)) if "." in rule][:1] == ["recall.c7"]
