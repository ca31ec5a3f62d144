"""Decide the next action of a rollout from its log and an observation. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from scorer.rollout.canary_analysis.verdict import CanaryDecision, CanaryVerdict
from scorer.rollout.controller.log_records import Outcome, PlannedMove, Verb
from scorer.rollout.controller.plan import PlanStep, StepKind
from scorer.rollout.controller.rollout_state import Rollout


@dataclass(frozen=True, slots=True)
class Observation:
    """The state that the controller observes in one cycle.

    Attributes:
        now_ms: The time in Unix milliseconds.
        revision: The channel's current revision.
        refused: The reasons why scorers refuse the candidate, one line each.
        verdict: The verdict on the candidate in the current step, with all reasons against a promotion; None if the
            step is not analysed yet.
        lacking: The names of the rules that do not pass.
        moved_by: The actor of the channel's last move, with the reason of the move.
    """

    now_ms: int
    revision: int
    refused: Sequence[str] = ()
    verdict: CanaryVerdict | None = None
    lacking: frozenset[str] = frozenset()
    moved_by: str = "another process"


class ActionKind(StrEnum):
    """The kinds of actions.

    `COMPARE` runs the comparison, `MOVE` moves the channel, `END` ends the rollout without a move, and `WAIT` changes nothing.
    """

    COMPARE = "compare"
    MOVE = "move"
    END = "end"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class NextAction:
    """The next action and its reasons.

    Attributes:
        act: The kind of the action.
        reasons: The reasons, one line each.
        step: The index of the step to which the action belongs; without a meaning for `WAIT`.
        verdict: The decision on the candidate; empty if there is none.
        move: The move of the channel to other versions; None unless `act` is MOVE.
        outcome: The outcome of the rollout; None if this action does not end it.
        for_person: Whether the rollout waits for an operator.
    """

    act: ActionKind
    reasons: tuple[str, ...] = ()
    step: int = -1
    verdict: str = ""
    move: PlannedMove | None = None
    outcome: Outcome | None = None
    for_person: bool = False


def next_action(rollout: Rollout, observation: Observation) -> NextAction:
    """Return the next action of a rollout.

    The first of these cases that applies determines the action:
    1. Another process has moved the channel: the rollout ends.
    2. An operator has aborted the rollout: the rollout is rolled back.
    3. Scorers refuse the candidate, and the rollout has moved the channel: the rollout is rolled back.
    4. Otherwise the result of the current step determines the action.
    """
    if observation.revision != rollout.revision:
        position = f"the channel is at revision {observation.revision}, and this rollout had it at {rollout.revision}"
        reason = f"{position}: {observation.moved_by} moved it"
        return NextAction(ActionKind.END, (reason,), rollout.step, outcome=Outcome.OVERTAKEN)
    if (abort := rollout.aborted) is not None:
        return _roll_back(rollout, (str(abort),), Outcome.ABORTED)
    if observation.refused and rollout.moved:
        return _roll_back(rollout, tuple(observation.refused), Outcome.ROLLED_BACK)
    step = rollout.at()
    if step is None:
        return _advance(rollout, ("the rollout starts",))
    if step.kind is StepKind.COMPARE:
        return _after_comparison(rollout)
    return _after_watching(rollout, step, observation) if step.judged else _advance(rollout, (f"{step} is not analysed",))


def _after_watching(rollout: Rollout, step: PlanStep, observation: Observation) -> NextAction:
    verdict = observation.verdict
    if verdict is None:
        return NextAction(ActionKind.WAIT, ("the step is not analysed yet",))
    if verdict.decision is CanaryDecision.ROLL_BACK:
        return _roll_back(rollout, verdict.reasons, Outcome.ROLLED_BACK)
    if verdict.decision is CanaryDecision.PROMOTE or rollout.step in rollout.approved:
        return _advance(rollout, _allowed(rollout, verdict.reasons))
    waited = (observation.now_ms - rollout.began_ms) / 1_000 - step.seconds
    late = waited >= rollout.plan.undecided_seconds(set(observation.lacking))
    note = (f"undecided {waited:.0f} s after its bake time: approve or abort",) if late else ()
    return NextAction(ActionKind.WAIT, (*note, *verdict.reasons), for_person=late)


def _allowed(rollout: Rollout, reasons: tuple[str, ...]) -> tuple[str, ...]:
    """Return the reasons, preceded by the operator's approval of the step if there is one."""
    command = rollout.approved.get(rollout.step)
    return reasons if command is None else (str(command), *reasons)


def _after_comparison(rollout: Rollout) -> NextAction:
    comparison = rollout.compared
    if comparison is None:
        return NextAction(ActionKind.COMPARE, ("the comparison is due",), rollout.step)
    if comparison.verdict == CanaryDecision.PROMOTE:
        return _advance(rollout, tuple(comparison.why))
    return _roll_back(rollout, tuple(comparison.why), Outcome.REJECTED)


def _roll_back(rollout: Rollout, reasons: tuple[str, ...], outcome: Outcome) -> NextAction:
    """Return the channel move back to the revision before the rollout.

    If the rollout has not moved the channel, return the end of the rollout instead.
    """
    if not rollout.moved:
        ended = Outcome.REJECTED if outcome is Outcome.ROLLED_BACK else outcome
        return NextAction(ActionKind.END, reasons, rollout.step, CanaryDecision.ROLL_BACK, outcome=ended)
    move = PlannedMove(rollout.revision, restores=rollout.base)
    return NextAction(ActionKind.MOVE, reasons, rollout.step, CanaryDecision.ROLL_BACK, move, outcome)


def _advance(rollout: Rollout, reasons: tuple[str, ...]) -> NextAction:
    """Return the action that starts the next step or ends the rollout.

    The action is WAIT if the rollout is paused or the current step needs an approval.
    """
    step = rollout.at()
    if rollout.paused:
        pause = next((str(command) for command in reversed(rollout.asked) if command.verb is Verb.PAUSE), "it is paused")
        return NextAction(ActionKind.WAIT, (f"{pause}: resume or abort", *reasons), for_person=True)
    if step is not None and step.approve and rollout.step not in rollout.approved:
        return NextAction(ActionKind.WAIT, (f"{step} is done: approve or abort", *reasons), for_person=True)
    next_step = rollout.step + 1
    champion, candidate = rollout.rivals
    if next_step == len(rollout.plan.steps):
        if step is None or not step.watch:
            return NextAction(ActionKind.END, reasons, rollout.step, CanaryDecision.PROMOTE, outcome=Outcome.COMPLETED)
        single_version = PlannedMove(rollout.revision, candidate.version, candidate.digest)
        return NextAction(ActionKind.MOVE, reasons, rollout.step, CanaryDecision.PROMOTE, single_version, Outcome.COMPLETED)
    new_step = rollout.plan.steps[next_step]
    pairs = rollout.plan.pairs(next_step)
    match new_step.kind:
        case StepKind.COMPARE:
            return NextAction(ActionKind.COMPARE, reasons, next_step)
        case StepKind.SHADOW:
            move = PlannedMove(rollout.revision, champion.version, champion.digest, shadow=candidate.version, pairs=pairs)
        case StepKind.CANARY:
            move = PlannedMove(rollout.revision, candidate.version, candidate.digest, new_step.canary, pairs=pairs)
        case StepKind.PROMOTE:
            previous_version = champion.version if new_step.watch else None
            kept_pairs = pairs if new_step.watch else 0
            move = PlannedMove(rollout.revision, candidate.version, candidate.digest, shadow=previous_version, pairs=kept_pairs)
    outcome = Outcome.COMPLETED if new_step.kind is StepKind.PROMOTE and not new_step.watch else None
    return NextAction(ActionKind.MOVE, reasons, next_step, CanaryDecision.PROMOTE, move, outcome)
