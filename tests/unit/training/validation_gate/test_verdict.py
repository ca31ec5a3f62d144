"""The verdict: every rule by a hold-out that breaks it, and models that are equal, better, worse and first."""

import json
from typing import Any

import numpy as np
import pytest

from tests.unit.training.hold_out import CLASSES, DAY, HoldOut
from training.settings import GateSection
from training.validation_gate.comparison import Comparison
from training.validation_gate.inputs import Evidence
from training.validation_gate.verdict import judge


def judged(evidence: Evidence, coverage: float = 0.9, **gate: Any) -> Comparison:
    return judge(evidence, GateSection.model_validate(gate), coverage, 2013)


def failed(found: Comparison) -> list[str]:
    return [rule.name for rule in found.rules if not rule.passed]


def test_a_version_as_good_as_the_champion_passes_and_is_not_called_better() -> None:
    made = HoldOut()
    champion = made.scores(0.05)
    evidence = made.evidence(champion, made.scores(0.05))
    found = judged(evidence)
    assert (found.verdict, failed(found)) == ("passed", [])
    assert found.because.startswith("no rule failed: the difference in auc is ")
    assert failed(judged(evidence, promote="better"))[0] == "auc"


def test_a_better_version_passes_both_ways() -> None:
    made = HoldOut()
    evidence = made.evidence(made.scores(0.5), made.scores(0.0))
    assert [judged(evidence, promote=promote, margin=0.01).verdict for promote in ("not-worse", "better")] == ["passed"] * 2


def test_a_worse_version_is_refused_with_the_rule_its_value_and_its_bound() -> None:
    made = HoldOut()
    found = judged(made.evidence(made.scores(0.0), made.scores(0.6)))
    assert (found.verdict, failed(found)[0]) == ("refused", "auc")
    rule = next(rule for rule in found.rules if rule.name == "auc")
    assert found.difference is not None
    assert rule.value == found.difference.low
    assert rule.value is not None
    assert rule.value < found.difference.value < found.difference.high < (rule.bound or 0.0) == -0.002
    assert found.because.startswith(f"rule auc ({rule.value:,.5g}, and the bound is -0.002): the challenger is not shown to be")


def test_the_same_scores_are_the_same() -> None:
    made = HoldOut()
    scores = made.scores(0.1)
    found = judged(made.evidence(scores, scores.copy()), promote="better")
    assert (found.verdict, found.because) == ("same", "the challenger gives the champion's score on every row")


def test_a_champion_that_learned_from_the_rows_is_refused_before_all_else() -> None:
    made = HoldOut()
    scores = made.scores(0.1)
    found = judged(made.evidence(scores, scores, leaked=3))
    assert (found.verdict, failed(found)) == ("refused", ["leak", "differs"])
    told = "rule leak (3, and the bound is 0): the champion was trained on 3 of the 56,000 rows of this evaluation"
    assert found.because == told
    unknown = judged(made.evidence(scores, made.scores(0.1), leaked=None)).rules[0]
    assert (unknown.name, unknown.value, unknown.bound, unknown.passed) == ("leak", None, None, True)


def test_too_few_labels_are_refused_by_the_coverage_of_the_hold_out() -> None:
    made = HoldOut()
    labelled = made.random.random(made.count) < 0.85
    evidence = made.evidence(made.scores(0.05), made.scores(0.05)).select(labelled)
    assert failed(judged(evidence)) == ["coverage"]
    assert judged(evidence, coverage=0.8).verdict == "passed"


@pytest.mark.parametrize(("days", "stale"), [(0.9, []), (1.1, ["fresh"]), (3.0, ["fresh"])])
def test_stale_labels_are_named_even_where_enough_events_have_one(days: float, stale: list[str]) -> None:
    made = HoldOut()
    labelled = made.times < 14 * DAY - days * DAY
    found = judged(made.evidence(made.scores(0.05), made.scores(0.05)).select(labelled), coverage=0.5)
    assert failed(found) == stale
    assert ("labels are stale" in found.because) == bool(stale)


def test_rows_that_one_version_cannot_score_are_left_out_and_too_many_are_refused() -> None:
    made = HoldOut()
    champion, challenger = made.scores(0.05), made.scores(0.05)
    champion[:250], challenger[250:500] = np.nan, np.nan
    found = judged(made.evidence(champion, challenger))
    assert (found.verdict, found.rows.count) == ("passed", made.count - 500)
    champion[:800] = np.nan
    found = judged(made.evidence(champion, challenger))
    assert failed(found) == ["scored"]
    assert found.rules[3].value == pytest.approx(1 - 800 / made.count)
    champion[:], challenger[:] = np.nan, np.nan
    nothing = judged(made.evidence(champion, challenger))
    assert (nothing.verdict, nothing.rows.count, failed(nothing)[0]) == ("refused", 0, "scored")


def test_few_blocks_are_too_few_rows() -> None:
    made = HoldOut(days=4)
    found = judged(made.evidence(made.scores(0.05), made.scores(0.05)))
    assert (failed(found)[0], found.rows.blocks) == ("blocks", 4)
    assert "too few rows: they cover 4 blocks of time" in found.because


def test_an_interval_that_leaves_the_question_open_is_too_few_rows() -> None:
    made = HoldOut(days=6, a_day=200)
    found = judged(made.evidence(made.scores(0.4), made.scores(0.4)))
    width = next(rule for rule in found.rules if rule.name == "width")
    assert (failed(found)[0], width.bound) == ("width", 0.004)
    assert found.because.startswith("rule width (")
    assert "too few rows: the difference in auc is" in found.because
    large = judged(made.evidence(made.scores(3.0), made.scores(0.0)), promote="better")
    width = next(rule for rule in large.rules if rule.name == "width")
    assert (width.bound, width.passed, "auc" in failed(large)) == (None, True, False)
    assert (width.value or 0.0) > 0.004


def test_a_class_that_is_recalled_less_is_refused_though_the_auc_is_the_same() -> None:
    made = HoldOut()
    champion = made.scores(0.0)
    found = judged(made.evidence(champion, np.where(champion > 0.5, champion * 0.9, champion)))
    assert failed(found)[0] == f"recall.{CLASSES[1]}"
    assert "a class may be worse: recall.late is -" in found.because


def test_worse_probabilities_are_refused_though_ranks_and_decisions_are_the_same() -> None:
    made = HoldOut()
    champion = made.scores(0.0)
    bold = np.where(champion >= 0.5, champion**0.25, champion**3)
    found = judged(made.evidence(champion, np.where(champion >= 0.5, np.maximum(bold, 0.5), bold)))
    assert failed(found) == ["brier"]
    assert "probabilities may be worse" in found.because
    no_probabilities = judged(made.evidence(champion * 2, made.scores(0.0) * 2), class_margin=0.5)
    brier = next(rule for rule in no_probabilities.rules if rule.name == "brier")
    assert (brier.value, brier.passed) == (None, True)


def test_a_loss_in_one_slice_is_named_though_the_whole_is_not_worse() -> None:
    made = HoldOut()
    champion, challenger = made.scores(0.1), made.scores(0.0)
    carrier = made.random.choice(["UA", "AA", "US"], made.count, p=[0.48, 0.48, 0.04])
    hit = np.flatnonzero(carrier == "US")
    challenger[hit] = made.random.permutation(challenger[hit])
    lenient: dict[str, Any] = {"class_margin": 0.1, "margin": 0.02, "slices": ["carrier"]}
    found = judged(made.evidence(champion, challenger, slices={"carrier": carrier}), **lenient)
    assert failed(found) == ["slices"]
    assert f"where carrier is 'US' ({len(hit):,} rows) the challenger is worse" in found.because
    assert [(one.field, one.value) for one in found.slices] == [("carrier", value) for value in ("AA", "UA", "US")]
    few = np.where(np.cumsum(carrier == "US") <= 999, carrier, "AA")
    small = judged(made.evidence(champion, champion**1.01, slices={"carrier": few}), **lenient)
    assert "US" not in [one.value for one in small.slices]


def test_equal_versions_do_not_fail_for_one_of_many_slices() -> None:
    made = HoldOut()
    slices = {"field": made.random.integers(0, 50, made.count).astype(str)}
    found = [judged(made.evidence(made.scores(0.3), made.scores(0.3), slices=slices), margin=0.02) for _ in range(4)]
    assert [("slices" in failed(one), len(one.slices)) for one in found] == [(False, 50)] * 4
    assert min(one.difference.low for each in found for one in each.slices) < -0.03  # which a lower bound would have refused


def test_a_first_model_must_be_better_than_chance() -> None:
    made = HoldOut()
    found = judged(made.evidence(None, made.scores(0.3)))
    assert (found.verdict, found.champion, found.difference, found.discordant) == ("passed", None, None, None)
    assert [rule.name for rule in found.rules] == ["coverage", "fresh", "scored", "blocks", "chance"]
    coin = judged(made.evidence(None, np.full(made.count, 0.25)))
    assert (coin.verdict, failed(coin)) == ("refused", ["chance"])
    one_class = judged(made.evidence(None, made.scores(0.3)).select(~made.true), coverage=0.1)
    assert (failed(one_class), one_class.because) == (["chance"], "rule chance: too few rows: the AUC is unknown")


def test_mcnemar_is_shown_and_decides_nothing() -> None:
    made = HoldOut()
    champion = made.scores(0.0)
    challenger = np.where((champion > 0.3) & (champion < 0.5), 0.5 + (champion - 0.3) / 1e6, champion)
    found = judged(made.evidence(champion, challenger), class_margin=0.5, margin=0.1)
    assert found.discordant is not None
    right = [(scores >= 0.5) == made.true for scores in (champion, challenger)]
    assert found.discordant.only_champion_right == int((right[0] & ~right[1]).sum())
    assert found.discordant.only_challenger_right == int((right[1] & ~right[0]).sum())
    assert (found.discordant.mcnemar_p < 0.01, found.verdict) == (True, "passed")


def test_the_document_is_json_with_every_part_and_the_same_for_the_same_evidence() -> None:
    made = HoldOut()
    evidence = made.evidence(made.scores(0.1), made.scores(0.1))
    found = judged(evidence)
    assert found == judged(evidence)
    told = found.to_dict()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert list(told) == [
        "run", "rows", "metric", "champion", "challenger", "difference", "discordant", "slices", "rules", "verdict", "because",
    ]  # fmt: skip
    assert list(told["rows"]) == ["digest", "count", "from", "to", "blocks"]
    assert told["rows"]["digest"] == evidence.rows.digest()
    assert told["rows"]["from"].startswith("1970-01-01T00:0")
    assert list(told["champion"]) == ["version", "digest", "revision", "metrics", "confusion_matrix"]
    assert list(told["challenger"]) == ["version", "digest", "metrics", "confusion_matrix"]
    assert sum(map(sum, told["challenger"]["confusion_matrix"]["counts"])) == made.count
    assert all({"name", "value", "bound", "passed"} <= set(rule) for rule in told["rules"])
