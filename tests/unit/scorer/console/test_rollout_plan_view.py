"""The view of a planned rollout: steps, bake time, analysis, shares and decisions."""

from typing import Any

import pytest

from scorer.console import rollout_plan_view
from scorer.console.analysis_view import WIDTH, analysis_view
from scorer.console.state import ConsoleState
from scorer.rollout.controller.log_records import EntryKind, OperatorCommand, Outcome, PlannedMove, Verb
from tests.support import rollouts
from tests.unit.scorer.console import console_records
from tests.unit.scorer.console.console_records import NOW


def show_panel(state: ConsoleState, now: float = NOW) -> rollout_plan_view.RolloutPanel:
    view = rollout_plan_view.panel(state, now)
    assert view is not None
    return view


def test_rollout_shows_its_step_bake_time_and_waits() -> None:
    state = ConsoleState()
    assert rollout_plan_view.panel(state, NOW) is None
    console_records.rollout(state, rollouts.started(NOW))
    assert [stage.place for stage in show_panel(state).stages] == ["next"] * 4
    console_records.in_canary(state)
    view = show_panel(state)
    assert [(stage.name, stage.place) for stage in view.stages] == [
        ("shadow 20 %", "done"),
        ("canary 5 %", "now"),
        ("canary 25 %", "next"),
        ("promote", "next"),
    ]
    assert (view.baked, view.wanted, view.waits, view.controller) == (300.0, 900, ["flips: no pairs"], "m.rollout/0")
    assert view.running
    assert not view.for_person
    assert view.stages[2].approve


def test_controller_without_reports_is_silent() -> None:
    state = ConsoleState()
    console_records.in_canary(state)
    assert not show_panel(state, NOW + 13).controller_silent
    assert show_panel(state, NOW + 15).controller_silent
    console_records.rollout(state, rollouts.entry(NOW, 5, EntryKind.ENDED, 1, outcome=Outcome.OVERTAKEN))
    assert not show_panel(state, NOW + 3_600).controller_silent


def test_step_waits_for_an_approval_until_it_is_given() -> None:
    state = ConsoleState()
    console_records.in_canary(state, for_person=True)
    assert show_panel(state).for_person
    console_records.rollout(state, OperatorCommand(Verb.PAUSE, "bob", "", 1, 1))
    assert show_panel(state).paused
    console_records.rollout(state, OperatorCommand(Verb.APPROVE, "bob", "", 1, 1))
    assert not show_panel(state).for_person
    console_records.rollout(state, OperatorCommand(Verb.ABORT, "bob", "no", 1, 1))
    assert show_panel(state).aborted == "bob"


def test_ended_rollout_keeps_its_outcome_and_analysis() -> None:
    state = ConsoleState()
    console_records.in_canary(state)
    rollback_entry = rollouts.entry(
        NOW,
        5,
        EntryKind.INTENDED,
        1,
        move=PlannedMove(3, restores=1),
        verdict="roll back",
        judgement=rollouts.judgement(0.02, 0.01, 0.03),
    )
    console_records.rollout(state, rollback_entry, rollouts.entry(NOW, 6, EntryKind.MOVED, 1, revision=4))
    assert show_panel(state).analysis is None  # this step has no analysis yet
    console_records.rollout(state, rollouts.entry(NOW, 7, EntryKind.ENDED, 1, outcome=Outcome.ROLLED_BACK))
    view = show_panel(state)
    assert (view.outcome, view.stages[1].place, view.stages[2].place) == ("rolled back", "ended", "next")
    assert view.analysis is not None
    assert view.analysis.bars[0].label == "beyond its margin"
    assert (view.share, view.waits, view.wanted) == (None, [], 0)
    assert [(e.event, e.revision) for e in view.log][:4] == [
        ("ended: rolled back", 0),
        ("moved", 4),
        ("to move to revision 1 (restored), roll back", 0),
        ("moved", 3),
    ]
    assert rollout_plan_view.pairs(state) is None


def test_every_step_of_a_completed_rollout_is_done() -> None:
    state = ConsoleState()
    console_records.in_canary(state)
    console_records.rollout(state, rollouts.entry(NOW, 5, EntryKind.ENDED, 1, outcome=Outcome.COMPLETED))
    assert {stage.place for stage in show_panel(state).stages} == {"done"}


def test_share_counts_events_of_the_current_revision() -> None:
    state = ConsoleState()
    console_records.in_canary(state)
    share = show_panel(state).share
    assert share is not None
    assert (share.keys, share.measured) == (0.05, None)
    for number in range(100):
        arm, failed = ("canary", "breaker") if number < 4 else ("champion", None)
        state.arms.add(console_records.score(0.5, arm=arm, revision=3, fallback=failed if number < 3 else None))
        state.arms.add(console_records.score(0.5, arm="canary", revision=2))
    assert show_panel(state).share == rollout_plan_view.CanarySample(0.05, 100, 0.04, 3)


def test_pairs_are_of_a_running_rollout() -> None:
    state = ConsoleState()
    console_records.in_canary(state)
    view = rollout_plan_view.pairs(state)
    assert view is not None
    assert view[1].pairs == 4_000
    console_records.in_canary(state_without_analysis := ConsoleState(), judgement=None)
    assert rollout_plan_view.pairs(state_without_analysis) is None


@pytest.mark.parametrize(
    ("numbers", "tone", "label"),
    [
        ((0.001, -0.002, 0.004), "good", "within its margin"),
        ((0.001, -0.002, 0.006), "wait", "up to 0.006 is possible, the margin is 0.005"),
        ((0.02, 0.01, 0.03), "bad", "beyond its margin"),
    ],
)
def test_bar_shows_the_interval_and_the_margin(numbers: tuple[float, float, float], tone: str, label: str) -> None:
    view = analysis_view(rollouts.judgement(*numbers))
    assert view is not None
    bar = view.bars[0]
    assert (bar.tone, bar.label) == (tone, label)
    assert bar.mean is not None
    assert 0.0 <= bar.left < bar.mean < bar.right <= WIDTH
    assert 0.0 < bar.zero < bar.edge < WIDTH
    assert (bar.right < bar.edge) == (tone == "good")
    assert (bar.left > bar.zero) == (tone == "bad")
    unknown = view.bars[1]
    assert (unknown.left, unknown.right, unknown.mean, unknown.label) == (0.0, WIDTH, None, "no pairs")


def test_decisions_of_both_versions_are_a_matrix() -> None:
    view = analysis_view(rollouts.judgement())
    assert view is not None
    assert view.matrix is not None
    assert (view.matrix.names, view.matrix.counts, view.matrix.alike) == (["late", "on time"], [[900, 100], [0, 0]], 0.9)
    undecided = rollouts.judgement() | {"decisions": [{"champion": None, "candidate": None, "events": 5}]}
    assert (scored := analysis_view(undecided)) is not None
    assert scored.matrix is None
    decisions = [{"champion": str(n), "candidate": str(n), "events": 1} for n in range(50)]
    assert (wide := analysis_view(rollouts.judgement() | {"decisions": decisions})) is not None
    assert wide.matrix is not None
    assert (len(wide.matrix.names), wide.matrix.rest) == (8, 42)


@pytest.mark.parametrize(
    "wrong", [{}, {"verdict": 1}, {"verdict": "hold", "rules": [{}]}, {"verdict": "hold", "drift": "none"}]
)
def test_invalid_analysis_document_has_no_view(wrong: dict[str, Any]) -> None:
    assert analysis_view(wrong) is None
    assert analysis_view(None) is None


def test_invalid_rollout_records_change_nothing() -> None:
    state = ConsoleState()
    console_records.in_canary(state)
    before = show_panel(state)
    console_records.rollout(
        state, rollouts.entry(NOW, 5, EntryKind.MOVED, 99, revision=7), rollouts.entry(NOW, 5, EntryKind.MOVED, -7, revision=7)
    )
    deep = b'{"controller": "x", "at_ms": 1, "step": 1, "judgement": {"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}"
    state.rollouts.apply(b"r/state", deep)
    state.rollouts.apply(b"r/state", b"\xff")
    assert show_panel(state) == before
