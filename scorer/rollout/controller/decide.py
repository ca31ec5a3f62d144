"""What a rollout does next, by its log and by what is seen of it. Pure: values in, decision out."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from scorer.rollout.canary_analysis.verdict import CanaryDecision, CanaryVerdict
from scorer.rollout.controller.event_log import Rollout
from scorer.rollout.controller.log_records import Outcome, PlannedMove, Verb
from scorer.rollout.controller.plan import PlanStep, StepKind


@dataclass(frozen=True, slots=True)
class Observation:
    """What is seen of a rollout at one look. `revision` is the channel's now. `refused`: why scorers refuse the candidate, a
    line each. `verdict` is that on the step's pairs, with all that keeps it from passing; None where it is not judged yet.
    `lacking` are the rules by name that do not say that the candidate passes. `moved_by` is who moved the channel last."""

    now_ms: int
    revision: int
    refused: Sequence[str] = ()
    verdict: CanaryVerdict | None = None
    lacking: frozenset[str] = frozenset()
    moved_by: str = "somebody"


class ActionKind(StrEnum):
    """`COMPARE`: have the candidate compared. `MOVE`: the channel. `END`: without a move. `WAIT`: look again."""

    COMPARE, MOVE, END, WAIT = "compare", "move", "end", "wait"


@dataclass(frozen=True, slots=True)
class NextAction:
    """`step` is the one that a move begins. `outcome` is that of the rollout, where this ends it. `for_person`: it waits for a
    person's word."""

    act: ActionKind
    why: tuple[str, ...] = ()
    step: int = -1
    verdict: str = ""
    move: PlannedMove | None = None
    outcome: Outcome | None = None
    for_person: bool = False


def next_action(rollout: Rollout, seen: Observation) -> NextAction:
    """A person's move of the channel holds; then a person's abort, then a rollback, then what the step says."""
    if seen.revision != rollout.revision:
        where = f"the channel is at revision {seen.revision}, and this rollout had it at {rollout.revision}"
        why = f"{where}: {seen.moved_by} moved it"
        return NextAction(ActionKind.END, (why,), rollout.step, outcome=Outcome.OVERTAKEN)
    if (command := rollout.aborted) is not None:
        return _back(rollout, (str(command),), Outcome.ABORTED)
    if seen.refused and rollout.moved:
        return _back(rollout, tuple(seen.refused), Outcome.ROLLED_BACK)
    step = rollout.at()
    if step is None:
        return _forward(rollout, ("it begins",))
    if step.kind is StepKind.COMPARE:
        return _after_comparison(rollout)
    return _after_watching(rollout, step, seen) if step.judged else _forward(rollout, (f"{step} is not watched",))


def _after_watching(rollout: Rollout, step: PlanStep, seen: Observation) -> NextAction:
    verdict = seen.verdict
    if verdict is None:
        return NextAction(ActionKind.WAIT, ("the judge has not looked yet",))
    if verdict.decision is CanaryDecision.ROLL_BACK:
        return _back(rollout, verdict.why, Outcome.ROLLED_BACK)
    if verdict.decision is CanaryDecision.PROMOTE or rollout.step in rollout.approved:
        return _forward(rollout, _allowed(rollout, verdict.why))
    waited = (seen.now_ms - rollout.began_ms) / 1_000 - step.seconds
    late = waited >= rollout.plan.patience_with(set(seen.lacking))
    note = (f"undecided {waited:.0f} s beyond its time: approve or abort",) if late else ()
    return NextAction(ActionKind.WAIT, (*note, *verdict.why), for_person=late)


def _allowed(rollout: Rollout, why: tuple[str, ...]) -> tuple[str, ...]:
    """The reasons, with who has approved the step."""
    command = rollout.approved.get(rollout.step)
    return why if command is None else (str(command), *why)


def _after_comparison(rollout: Rollout) -> NextAction:
    found = rollout.compared
    if found is None:
        return NextAction(ActionKind.COMPARE, ("it is to be compared",), rollout.step)
    if found.verdict == CanaryDecision.PROMOTE:
        return _forward(rollout, tuple(found.why))
    return _back(rollout, tuple(found.why), Outcome.REJECTED)


def _back(rollout: Rollout, why: tuple[str, ...], outcome: Outcome) -> NextAction:
    """To the revision from before the rollout, if it has moved anything."""
    if not rollout.moved:
        ended = Outcome.REJECTED if outcome is Outcome.ROLLED_BACK else outcome
        return NextAction(ActionKind.END, why, rollout.step, CanaryDecision.ROLL_BACK, outcome=ended)
    move = PlannedMove(rollout.revision, restores=rollout.base)
    return NextAction(ActionKind.MOVE, why, rollout.step, CanaryDecision.ROLL_BACK, move, outcome)


def _forward(rollout: Rollout, why: tuple[str, ...]) -> NextAction:
    """To the next step, unless a person has something to say first."""
    step = rollout.at()
    if rollout.paused:
        by = next((str(command) for command in reversed(rollout.asked) if command.verb is Verb.PAUSE), "it is paused")
        return NextAction(ActionKind.WAIT, (f"{by}: resume or abort", *why), for_person=True)
    if step is not None and step.approve and rollout.step not in rollout.approved:
        return NextAction(ActionKind.WAIT, (f"{step} is done: approve or abort", *why), for_person=True)
    at = rollout.step + 1
    champion, candidate = rollout.rivals
    if at == len(rollout.plan.steps):
        if step is None or not step.watch:
            return NextAction(ActionKind.END, why, rollout.step, CanaryDecision.PROMOTE, outcome=Outcome.COMPLETED)
        alone = PlannedMove(rollout.revision, candidate.version, candidate.digest)
        return NextAction(ActionKind.MOVE, why, rollout.step, CanaryDecision.PROMOTE, alone, Outcome.COMPLETED)
    begun = rollout.plan.steps[at]
    pairs = rollout.plan.pairs(at)
    match begun.kind:
        case StepKind.COMPARE:
            return NextAction(ActionKind.COMPARE, why, at)
        case StepKind.SHADOW:
            move = PlannedMove(rollout.revision, champion.version, champion.digest, shadow=candidate.version, pairs=pairs)
        case StepKind.CANARY:
            move = PlannedMove(rollout.revision, candidate.version, candidate.digest, begun.canary, pairs=pairs)
        case StepKind.PROMOTE:
            before = champion.version if begun.watch else None
            kept = pairs if begun.watch else 0
            move = PlannedMove(rollout.revision, candidate.version, candidate.digest, shadow=before, pairs=kept)
    outcome = Outcome.COMPLETED if begun.kind is StepKind.PROMOTE and not begun.watch else None
    return NextAction(ActionKind.MOVE, why, at, CanaryDecision.PROMOTE, move, outcome)
