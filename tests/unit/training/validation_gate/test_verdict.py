"""The verdict: every rule by a hold-out that breaks it, and models that are equal, better, worse and first."""

import json
from typing import Any

import numpy as np
import pytest

from tests.unit.training.hold_out import CLASSES, DAY, HoldOut
from training.settings import GateSection
from training.validation_gate.comparison import GateComparison
from training.validation_gate.inputs import VerdictEvidence
from training.validation_gate.verdict import judge


def judged(evidence: VerdictEvidence, coverage: float = 0.9, **gate: Any) -> GateComparison:
    return judge(evidence, GateSection.model_validate(gate), coverage, 2013)


def failed(comparison: GateComparison) -> list[str]:
    return [rule.name for rule in comparison.rules if not rule.passed]


def test_a_version_as_good_as_the_champion_passes_and_is_not_called_better() -> None:
    hold_out = HoldOut()
    champion = hold_out.scores(0.05)
    evidence = hold_out.evidence(champion, hold_out.scores(0.05))
    comparison = judged(evidence)
    assert (comparison.verdict, failed(comparison)) == ("passed", [])
    assert comparison.because.startswith("no rule failed: the difference in auc is ")
    assert failed(judged(evidence, promote="better"))[0] == "auc"


def test_a_better_version_passes_both_ways() -> None:
    hold_out = HoldOut()
    evidence = hold_out.evidence(hold_out.scores(0.5), hold_out.scores(0.0))
    assert [judged(evidence, promote=promote, margin=0.01).verdict for promote in ("not-worse", "better")] == ["passed"] * 2


def test_a_worse_version_is_refused_with_the_rule_its_value_and_its_bound() -> None:
    hold_out = HoldOut()
    comparison = judged(hold_out.evidence(hold_out.scores(0.0), hold_out.scores(0.6)))
    assert (comparison.verdict, failed(comparison)[0]) == ("refused", "auc")
    rule = next(rule for rule in comparison.rules if rule.name == "auc")
    assert comparison.difference is not None
    assert rule.value == comparison.difference.low
    assert rule.value is not None
    assert rule.value < comparison.difference.value < comparison.difference.high < (rule.bound or 0.0) == -0.002
    assert comparison.because.startswith(
        f"rule auc ({rule.value:,.5g}, and the bound is -0.002): the challenger is not shown to be"
    )


def test_the_same_scores_are_the_same() -> None:
    hold_out = HoldOut()
    scores = hold_out.scores(0.1)
    comparison = judged(hold_out.evidence(scores, scores.copy()), promote="better")
    assert (comparison.verdict, comparison.because) == ("same", "the challenger gives the champion's score on every row")


def test_a_champion_that_was_trained_on_the_rows_is_refused_first() -> None:
    hold_out = HoldOut()
    scores = hold_out.scores(0.1)
    comparison = judged(hold_out.evidence(scores, scores, leaked=3))
    assert (comparison.verdict, failed(comparison)) == ("refused", ["leak", "differs"])
    reason = "rule leak (3, and the bound is 0): the champion was trained on 3 of the 56,000 rows of this evaluation"
    assert comparison.because == reason
    unknown = judged(hold_out.evidence(scores, hold_out.scores(0.1), leaked=None)).rules[0]
    assert (unknown.name, unknown.value, unknown.bound, unknown.passed) == ("leak", None, None, True)


def test_too_few_labels_are_refused_by_the_coverage_of_the_hold_out() -> None:
    hold_out = HoldOut()
    labelled = hold_out.random.random(hold_out.count) < 0.85
    evidence = hold_out.evidence(hold_out.scores(0.05), hold_out.scores(0.05)).select(labelled)
    assert failed(judged(evidence)) == ["coverage"]
    assert judged(evidence, coverage=0.8).verdict == "passed"


@pytest.mark.parametrize(("days", "stale"), [(0.9, []), (1.1, ["fresh"]), (3.0, ["fresh"])])
def test_stale_labels_are_named_although_enough_events_have_one(days: float, stale: list[str]) -> None:
    hold_out = HoldOut()
    labelled = hold_out.times < 14 * DAY - days * DAY
    comparison = judged(hold_out.evidence(hold_out.scores(0.05), hold_out.scores(0.05)).select(labelled), coverage=0.5)
    assert failed(comparison) == stale
    assert ("labels are stale" in comparison.because) == bool(stale)


def test_rows_that_one_version_cannot_score_are_omitted_and_too_many_are_refused() -> None:
    hold_out = HoldOut()
    champion, challenger = hold_out.scores(0.05), hold_out.scores(0.05)
    champion[:250], challenger[250:500] = np.nan, np.nan
    comparison = judged(hold_out.evidence(champion, challenger))
    assert (comparison.verdict, comparison.rows.count) == ("passed", hold_out.count - 500)
    champion[:800] = np.nan
    comparison = judged(hold_out.evidence(champion, challenger))
    assert failed(comparison) == ["scored"]
    assert comparison.rules[3].value == pytest.approx(1 - 800 / hold_out.count)
    champion[:], challenger[:] = np.nan, np.nan
    nothing = judged(hold_out.evidence(champion, challenger))
    assert (nothing.verdict, nothing.rows.count, failed(nothing)[0]) == ("refused", 0, "scored")


def test_few_blocks_are_too_few_rows() -> None:
    hold_out = HoldOut(days=4)
    comparison = judged(hold_out.evidence(hold_out.scores(0.05), hold_out.scores(0.05)))
    assert (failed(comparison)[0], comparison.rows.blocks) == ("blocks", 4)
    assert "too few rows: they cover 4 blocks of time" in comparison.because


def test_an_interval_that_leaves_the_question_open_is_too_few_rows() -> None:
    hold_out = HoldOut(days=6, a_day=200)
    comparison = judged(hold_out.evidence(hold_out.scores(0.4), hold_out.scores(0.4)))
    width = next(rule for rule in comparison.rules if rule.name == "width")
    assert (failed(comparison)[0], width.bound) == ("width", 0.004)
    assert comparison.because.startswith("rule width (")
    assert "raise gate.margin): the difference in auc is" in comparison.because
    large = judged(hold_out.evidence(hold_out.scores(3.0), hold_out.scores(0.0)), promote="better")
    width = next(rule for rule in large.rules if rule.name == "width")
    assert (width.bound, width.passed, "auc" in failed(large)) == (None, True, False)
    assert (width.value or 0.0) > 0.004


def test_a_class_that_is_recalled_less_is_refused_though_the_auc_is_the_same() -> None:
    hold_out = HoldOut()
    champion = hold_out.scores(0.0)
    comparison = judged(hold_out.evidence(champion, np.where(champion > 0.5, champion * 0.9, champion)))
    assert failed(comparison)[0] == f"recall.{CLASSES[1]}"
    assert "a class may be worse than with the champion: the difference in recall.late is -" in comparison.because


def test_worse_probabilities_are_refused_though_ranks_and_decisions_are_the_same() -> None:
    hold_out = HoldOut()
    champion = hold_out.scores(0.0)
    bold = np.where(champion >= 0.5, champion**0.25, champion**3)
    comparison = judged(hold_out.evidence(champion, np.where(champion >= 0.5, np.maximum(bold, 0.5), bold)))
    assert failed(comparison) == ["brier"]
    assert "probabilities may be worse" in comparison.because
    no_probabilities = judged(hold_out.evidence(champion * 2, hold_out.scores(0.0) * 2), class_margin=0.5)
    brier = next(rule for rule in no_probabilities.rules if rule.name == "brier")
    assert (brier.value, brier.passed) == (None, True)


def test_a_loss_in_one_slice_is_named_although_the_total_is_not_worse() -> None:
    hold_out = HoldOut()
    champion, challenger = hold_out.scores(0.1), hold_out.scores(0.0)
    carrier = hold_out.random.choice(["UA", "AA", "US"], hold_out.count, p=[0.48, 0.48, 0.04])
    hit = np.flatnonzero(carrier == "US")
    challenger[hit] = hold_out.random.permutation(challenger[hit])
    lenient: dict[str, Any] = {"class_margin": 0.1, "margin": 0.02, "slices": ["carrier"]}
    comparison = judged(hold_out.evidence(champion, challenger, slices={"carrier": carrier}), **lenient)
    assert failed(comparison) == ["slices"]
    assert f"where carrier is 'US' ({len(hit):,} rows) the challenger is worse" in comparison.because
    assert [(judged_slice.field, judged_slice.value) for judged_slice in comparison.slices] == [
        ("carrier", value) for value in ("AA", "UA", "US")
    ]
    reduced = np.where(np.cumsum(carrier == "US") <= 999, carrier, "AA")
    small = judged(hold_out.evidence(champion, champion**1.01, slices={"carrier": reduced}), **lenient)
    assert "US" not in [judged_slice.value for judged_slice in small.slices]


def test_equal_versions_do_not_fail_for_one_of_many_slices() -> None:
    hold_out = HoldOut()
    slices = {"field": hold_out.random.integers(0, 50, hold_out.count).astype(str)}
    comparisons = [
        judged(hold_out.evidence(hold_out.scores(0.3), hold_out.scores(0.3), slices=slices), margin=0.02) for _ in range(4)
    ]
    assert [("slices" in failed(comparison), len(comparison.slices)) for comparison in comparisons] == [(False, 50)] * 4
    assert (
        min(judged_slice.difference.low for comparison in comparisons for judged_slice in comparison.slices) < -0.03
    )  # which a lower bound would have refused


def test_a_first_model_must_be_better_than_chance() -> None:
    hold_out = HoldOut()
    comparison = judged(hold_out.evidence(None, hold_out.scores(0.3)))
    assert (comparison.verdict, comparison.champion, comparison.difference, comparison.discordant) == (
        "passed",
        None,
        None,
        None,
    )
    assert [rule.name for rule in comparison.rules] == ["coverage", "fresh", "scored", "blocks", "chance"]
    coin = judged(hold_out.evidence(None, np.full(hold_out.count, 0.25)))
    assert (coin.verdict, failed(coin)) == ("refused", ["chance"])
    one_class = judged(hold_out.evidence(None, hold_out.scores(0.3)).select(~hold_out.true), coverage=0.1)
    assert (failed(one_class), one_class.because) == (["chance"], "rule chance: too few rows: the AUC is unknown")


def test_mcnemar_is_shown_and_decides_nothing() -> None:
    hold_out = HoldOut()
    champion = hold_out.scores(0.0)
    challenger = np.where((champion > 0.3) & (champion < 0.5), 0.5 + (champion - 0.3) / 1e6, champion)
    comparison = judged(hold_out.evidence(champion, challenger), class_margin=0.5, margin=0.1)
    assert comparison.discordant is not None
    right = [(scores >= 0.5) == hold_out.true for scores in (champion, challenger)]
    assert comparison.discordant.only_champion_right == int((right[0] & ~right[1]).sum())
    assert comparison.discordant.only_challenger_right == int((right[1] & ~right[0]).sum())
    assert (comparison.discordant.mcnemar_p < 0.01, comparison.verdict) == (True, "passed")


def test_the_document_is_json_with_every_part_and_the_same_for_the_same_evidence() -> None:
    hold_out = HoldOut()
    evidence = hold_out.evidence(hold_out.scores(0.1), hold_out.scores(0.1))
    comparison = judged(evidence)
    assert comparison == judged(evidence)
    reason = comparison.to_dict()
    assert json.loads(json.dumps(reason, allow_nan=False)) == reason
    assert list(reason) == [
        "run",
        "rows",
        "target",
        "metric",
        "champion",
        "challenger",
        "difference",
        "discordant",
        "slices",
        "rules",
        "verdict",
        "because",
    ]
    assert list(reason["rows"]) == ["digest", "count", "from", "to", "blocks"]
    assert reason["rows"]["digest"] == evidence.rows.digest()
    assert reason["rows"]["from"].startswith("1970-01-01T00:0")
    assert list(reason["champion"]) == ["version", "digest", "revision", "metrics", "confusion_matrix"]
    assert list(reason["challenger"]) == ["version", "digest", "metrics", "confusion_matrix"]
    assert sum(map(sum, reason["challenger"]["confusion_matrix"]["counts"])) == hold_out.count
    assert all({"name", "value", "bound", "passed"} <= set(rule) for rule in reason["rules"])
