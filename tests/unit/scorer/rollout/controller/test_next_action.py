"""The next action of a rollout."""

from dataclasses import replace
from typing import Any

import pytest

from scorer.rollout.canary_analysis.verdict import CanaryDecision, CanaryVerdict
from scorer.rollout.controller.log_records import EntryKind, Outcome, PlannedMove, Verb
from scorer.rollout.controller.next_action import ActionKind, NextAction, Observation, next_action
from tests.unit.scorer.rollout.controller.rollout_records import BASE, NEW, OLD, STEPS, Story

PASSED = CanaryVerdict(CanaryDecision.PROMOTE, ("every rule",), ())
FAILED = CanaryVerdict(CanaryDecision.ROLL_BACK, ("errors: more",), ())
UNSURE = CanaryVerdict(CanaryDecision.HOLD, ("errors: 5 pairs",), ())
ROLLBACK = PlannedMove(BASE + 1, restores=BASE)


def action_of(story: Story, verdict: CanaryVerdict | None = None, revision: int | None = None, **observed: Any) -> NextAction:
    at = story.rollout.revision if revision is None else revision
    return next_action(story.rollout, Observation(1_000, at, verdict=verdict, **observed))


def at(step: int) -> Story:
    """Return a rollout that is at a step after the comparison."""
    story = Story().entry(EntryKind.COMPARED, 0, verdict=CanaryDecision.PROMOTE, why=["fine"])
    for number in range(1, step + 1):
        story.moved(number, BASE + number)
    return story


def test_a_rollout_starts_with_the_comparison_and_continues_if_it_passes() -> None:
    story = Story()
    assert action_of(story).act is ActionKind.COMPARE
    assert action_of(story).step == 0
    story.entry(EntryKind.COMPARED, 0, verdict=CanaryDecision.PROMOTE, why=["fine"])
    action = action_of(story)
    assert (action.act, action.step, action.reasons) == (ActionKind.MOVE, 1, ("fine",))
    assert action.move == PlannedMove(BASE, "1.0.0", OLD.digest, shadow="2.0.0", pairs=20)


def test_a_failed_comparison_ends_the_rollout_before_any_move() -> None:
    story = Story().entry(EntryKind.COMPARED, 0, verdict=CanaryDecision.ROLL_BACK, why=["flips"])
    assert action_of(story) == NextAction(ActionKind.END, ("flips",), 0, CanaryDecision.ROLL_BACK, outcome=Outcome.REJECTED)


def test_each_step_moves_the_channel_according_to_the_plan() -> None:
    canary = action_of(at(1), PASSED)
    assert (canary.step, canary.move) == (2, PlannedMove(BASE + 1, "2.0.0", NEW.digest, canary=5, pairs=20))
    promotion = action_of(at(2).command(Verb.APPROVE), PASSED)
    assert (promotion.step, promotion.move) == (3, PlannedMove(BASE + 2, "2.0.0", NEW.digest, shadow="1.0.0", pairs=20))
    assert promotion.outcome is None
    completion = action_of(at(3), PASSED)
    assert (completion.move, completion.outcome) == (PlannedMove(BASE + 3, "2.0.0", NEW.digest), Outcome.COMPLETED)


def test_without_a_watch_the_promotion_is_the_end() -> None:
    action = action_of(Story([{"promote": True}]))
    assert (action.act, action.move, action.outcome) == (
        ActionKind.MOVE,
        PlannedMove(BASE, "2.0.0", NEW.digest),
        Outcome.COMPLETED,
    )


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_worse_candidate_is_rolled_back_even_if_paused_or_approved(step: int) -> None:
    for story in (at(step), at(step).command(Verb.PAUSE), at(step).command(Verb.APPROVE)):
        action = action_of(story, FAILED)
        rollback = PlannedMove(BASE + step, restores=BASE)
        assert (action.act, action.move, action.outcome) == (ActionKind.MOVE, rollback, Outcome.ROLLED_BACK)
        assert (action.verdict, action.reasons) == (CanaryDecision.ROLL_BACK, FAILED.reasons)


def test_a_candidate_refused_by_scorers_is_rolled_back() -> None:
    assert action_of(at(1), UNSURE, refused=["a refuses 2.0.0: golden"]).move == ROLLBACK
    assert action_of(Story(), refused=["a refuses 2.0.0: from before"]).act is ActionKind.COMPARE, (
        "the rollout has not moved the channel yet"
    )


@pytest.mark.parametrize("verdict", [None, UNSURE])
def test_without_a_verdict_it_waits(verdict: CanaryVerdict | None) -> None:
    action = action_of(at(1), verdict)
    assert (action.act, action.for_person, action.move) == (ActionKind.WAIT, False, None)


def test_an_undecided_step_waits_for_an_operator_after_its_limit() -> None:
    story = at(1)
    late = Observation(story.rollout.began_ms + 1_000 * (10 + 6 * 3_600), BASE + 1, verdict=UNSURE)
    assert next_action(story.rollout, late).for_person
    early = replace(late, now_ms=late.now_ms - 1)
    assert not next_action(story.rollout, early).for_person
    assert next_action(story.command(Verb.APPROVE).rollout, late).act is ActionKind.MOVE


def test_labels_may_be_waited_for_longer() -> None:
    story = Story([{"canary": "5%"}, {"promote": True}], rules={"brier": {"margin": 0.1, "within": "2d"}}).moved(0, BASE + 1)
    late = Observation(story.rollout.began_ms + 10 * 3_600_000, BASE + 1, verdict=UNSURE, lacking=frozenset({"brier"}))
    assert not next_action(story.rollout, late).for_person
    assert next_action(story.rollout, replace(late, lacking=frozenset({"brier", "errors"}))).for_person


def test_a_step_that_requires_approval_waits_for_it() -> None:
    action = action_of(at(2), PASSED)
    assert (action.act, action.for_person) == (ActionKind.WAIT, True)
    assert action_of(at(2).command(Verb.APPROVE, 1), PASSED).act is ActionKind.WAIT, "the approval is for another step"
    assert action_of(at(2).command(Verb.APPROVE), PASSED).act is ActionKind.MOVE


def test_a_paused_rollout_does_not_proceed() -> None:
    paused = Story().command(Verb.PAUSE)
    assert (action_of(paused).act, action_of(paused).for_person) == (ActionKind.WAIT, True)
    assert action_of(at(1).command(Verb.PAUSE), PASSED).act is ActionKind.WAIT
    assert action_of(at(1).command(Verb.PAUSE).command(Verb.RESUME), PASSED).act is ActionKind.MOVE


def test_an_abort_rolls_back_or_only_ends_the_rollout() -> None:
    action = action_of(at(1).command(Verb.ABORT), PASSED)
    assert (action.move, action.outcome, action.reasons) == (ROLLBACK, Outcome.ABORTED, ("ann aborted it: because",))
    assert action_of(Story().command(Verb.ABORT)).outcome is Outcome.ABORTED
    assert action_of(Story().command(Verb.ABORT)).act is ActionKind.END


@pytest.mark.parametrize("revision", [BASE, BASE + 2])
def test_a_foreign_move_ends_the_rollout_in_any_case(revision: int) -> None:
    action = action_of(at(1).command(Verb.ABORT), FAILED, revision)
    assert (action.act, action.outcome, action.move) == (ActionKind.END, Outcome.OVERTAKEN, None)


def test_no_step_is_left_out() -> None:
    """If every step passes, each step runs once, in the order of the plan."""
    story = Story()
    steps: list[int] = []
    for _ in range(20):
        action = action_of(story, PASSED)
        if action.act is ActionKind.COMPARE:
            story.entry(EntryKind.COMPARED, action.step, verdict=CanaryDecision.PROMOTE)
        elif action.act is ActionKind.WAIT:
            story.command(Verb.APPROVE)
        else:
            assert action.move is not None
            story.moved(action.step, action.move.expects + 1)
        steps += [story.rollout.step] if not steps or steps[-1] != story.rollout.step else []
        if action.outcome is not None:
            break
    assert steps == list(range(len(STEPS)))
