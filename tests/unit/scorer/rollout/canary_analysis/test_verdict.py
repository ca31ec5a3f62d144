"""Verdicts: the conditions of a rollback, of a promotion and of a hold, and the bake clock."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from scorer.rollout.canary_analysis.bake_time import BEHIND_SECONDS, BakeClock, BakeConditions
from scorer.rollout.canary_analysis.key_strata import CELLS, Cells
from scorer.rollout.canary_analysis.rules import MetricRule
from scorer.rollout.canary_analysis.verdict import MIN_PAIRS, CanaryDecision, decide

ERRORS, FLIPS = MetricRule("errors", 0.005), MetricRule("flips", 0.05, signed=False)
SEEING = BakeConditions(6, 6, 0.1, 0.5)


def differing_pairs(pairs: int, differing: int, size: float = 1.0, cells: int = CELLS) -> Cells:
    """Return the cells of `pairs` pairs, spread evenly, of which `differing` differ by `size`."""
    differences = np.zeros(pairs)
    if differing:
        differences[:: pairs // differing][:differing] = size
    return Cells().added(np.arange(pairs) % cells, differences)


def test_a_promotion_needs_every_rule() -> None:
    equal_cells = {"errors": differing_pairs(10_000, 0), "flips": differing_pairs(10_000, 50)}
    assert decide([ERRORS, FLIPS], equal_cells).decision is CanaryDecision.PROMOTE
    assert decide([ERRORS], equal_cells).decision is CanaryDecision.PROMOTE
    verdict = decide([ERRORS, FLIPS], {"errors": equal_cells["errors"]})
    assert (verdict.decision, verdict.reasons) == (CanaryDecision.HOLD, ("flips: no pairs",))
    verdict = decide([ERRORS, FLIPS], equal_cells | {"flips": differing_pairs(10_000, 480)})
    assert verdict.decision is CanaryDecision.HOLD
    assert "flips: up to" in verdict.reasons[0]


def test_without_rules_or_data_nothing_is_promoted() -> None:
    assert decide([], {}).decision is CanaryDecision.HOLD
    assert decide([ERRORS], {}).decision is CanaryDecision.HOLD
    rule = decide([ERRORS], {}).to_dict()["rules"][0]
    assert (rule["estimate"], rule["low"], rule["high"], rule["pairs"]) == (None, None, None, 0)


@pytest.mark.parametrize(
    ("pairs", "cells", "missing"), [(MIN_PAIRS - 1, CELLS, "pairs, 3,000 are required"), (50_000, 399, "400 are required")]
)
def test_few_pairs_and_few_keys_hold(pairs: int, cells: int, missing: str) -> None:
    verdict = decide([MetricRule("errors", 0.5)], {"errors": differing_pairs(pairs, 0, cells=cells)})
    assert verdict.decision is CanaryDecision.HOLD
    assert missing in verdict.reasons[0]


def test_a_worse_candidate_is_rolled_back_despite_obstacles() -> None:
    verdict = decide([ERRORS, FLIPS], {"errors": differing_pairs(2_000, 60)}, obstacles=["the analysis is behind"])
    assert verdict.decision is CanaryDecision.ROLL_BACK
    assert "errors: +0.03, surely above" in verdict.reasons[0]
    assert (
        decide([ERRORS], {"errors": differing_pairs(2_000, 60, size=-1.0)}).decision is CanaryDecision.HOLD
    )  # better, with too few pairs


def test_a_significant_difference_within_the_margin_is_no_rollback() -> None:
    verdict = decide([ERRORS], {"errors": differing_pairs(200_000, 600)})
    assert verdict.findings[0].interval.low > 0.0
    assert verdict.decision is CanaryDecision.PROMOTE


def test_flips_are_rolled_back_beyond_their_margin_only() -> None:
    few_flips = {"flips": differing_pairs(2_000, 110)}  # 5.5 %: significantly above 0, not significantly above 5 %
    assert decide([FLIPS], few_flips).decision is CanaryDecision.HOLD
    assert decide([MetricRule("flips", 0.05)], few_flips).decision is CanaryDecision.ROLL_BACK
    assert decide([FLIPS], {"flips": differing_pairs(2_000, 200)}).decision is CanaryDecision.ROLL_BACK


def test_obstacles_hold() -> None:
    verdict = decide([ERRORS], {"errors": differing_pairs(10_000, 0)}, obstacles=["baked for 3 s of 60"])
    assert (verdict.decision, verdict.reasons) == (CanaryDecision.HOLD, ("baked for 3 s of 60",))


@examples(max_examples=50)
@given(st.integers(0, 20_000), st.integers(0, 100), st.integers(1, 10))
def test_more_steps_never_decide_sooner(pairs: int, share: int, steps: int) -> None:
    cells = {"errors": differing_pairs(pairs, pairs * share // 1_000)}
    single, several = decide([ERRORS], cells), decide([ERRORS], cells, steps=steps)
    assert several.decision in (single.decision, CanaryDecision.HOLD)


INVALID_CONDITIONS = [
    (BakeConditions(5, 6, 0.1, 0.5), "5 of 6 partitions"),
    (BakeConditions(0, 0, 0.1, 0.5), "0 of 0 partitions"),
    (BakeConditions(6, 6, None, 0.5), "no pairs"),
    (BakeConditions(6, 6, None, 0.5, "no shadow"), "no pairs: no shadow"),
    (BakeConditions(6, 6, 31.0, 0.5), "no pair for 31 s"),
    (BakeConditions(6, 6, 0.1, 30.0), "30 s behind"),
]


@pytest.mark.parametrize(("conditions", "reason"), INVALID_CONDITIONS)
def test_the_bake_clock_does_not_run_without_valid_conditions(conditions: BakeConditions, reason: str) -> None:
    bake = (
        BakeClock()
        .advance(0.0, SEEING)
        .advance(10.0, SEEING)
        .advance(20.0, conditions)
        .advance(29.0, SEEING)
        .advance(30.0, SEEING)
    )
    assert bake.baked == 11.0
    assert reason in next(bake.obstacles(11.0, conditions))
    assert not list(bake.obstacles(11.0, SEEING))
    assert list(bake.obstacles(12.0, SEEING)) == ["baked for 11 s of 12"]


@examples(max_examples=50)
@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=30))
def test_time_without_observations_and_clock_steps_backwards_do_not_count(times: list[float]) -> None:
    bake = BakeClock()
    for now in times:
        bake = bake.advance(now, SEEING)
    steps = [after - before for before, after in itertools.pairwise(times)]
    assert bake.baked == pytest.approx(sum(step for step in steps if 0.0 <= step < BEHIND_SECONDS))
