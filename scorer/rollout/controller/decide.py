"""What a rollout does next, by its log and by what is seen of it. Pure: values in, decision out."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from scorer.rollout.canary_analysis.verdict import Decision, Verdict
from scorer.rollout.controller.event_log import Rollout
from scorer.rollout.controller.log_records import Outcome, Planned, Verb
from scorer.rollout.controller.plan import Kind, Step


@dataclass(frozen=True, slots=True)
class Sighting:
    """What is seen of a rollout at one look. `revision` is the channel's now. `refused`: why scorers refuse the candidate, a
    line each. `verdict` is that on the step's pairs, with all that keeps it from passing; None where it is not judged yet.
    `lacking` are the rules by name that do not say that the candidate passes. `moved_by` is who moved the channel last."""

    now_ms: int
    revision: int
    refused: Sequence[str] = ()
    verdict: Verdict | None = None
    lacking: frozenset[str] = frozenset()
    moved_by: str = "somebody"


class Act(StrEnum):
    """`COMPARE`: have the candidate compared. `MOVE`: the channel. `END`: without a move. `WAIT`: look again."""

    COMPARE, MOVE, END, WAIT = "compare", "move", "end", "wait"


@dataclass(frozen=True, slots=True)
class Next:
    """`step` is the one that a move begins. `outcome` is that of the rollout, where this ends it. `for_person`: it waits for a
    person's word."""

    act: Act
    why: tuple[str, ...] = ()
    step: int = -1
    verdict: str = ""
    move: Planned | None = None
    outcome: Outcome | None = None
    for_person: bool = False


def following(rollout: Rollout, seen: Sighting) -> Next:
    """A person's move of the channel holds; then a person's abort, then a rollback, then what the step says."""
    if seen.revision != rollout.revision:
        where = f"the channel is at revision {seen.revision}, and this rollout had it at {rollout.revision}"
        why = f"{where}: {seen.moved_by} moved it"
        return Next(Act.END, (why,), rollout.step, outcome=Outcome.OVERTAKEN)
    if (command := rollout.aborted) is not None:
        return _back(rollout, (str(command),), Outcome.ABORTED)
    if seen.refused and rollout.moved:
        return _back(rollout, tuple(seen.refused), Outcome.ROLLED_BACK)
    step = rollout.at()
    if step is None:
        return _forward(rollout, ("it begins",))
    if step.kind is Kind.COMPARE:
        return _after_comparison(rollout)
    return _after_watching(rollout, step, seen) if step.judged else _forward(rollout, (f"{step} is not watched",))


def _after_watching(rollout: Rollout, step: Step, seen: Sighting) -> Next:
    verdict = seen.verdict
    if verdict is None:
        return Next(Act.WAIT, ("the judge has not looked yet",))
    if verdict.decision is Decision.ROLL_BACK:
        return _back(rollout, verdict.why, Outcome.ROLLED_BACK)
    if verdict.decision is Decision.PROMOTE or rollout.step in rollout.approved:
        return _forward(rollout, _allowed(rollout, verdict.why))
    waited = (seen.now_ms - rollout.began_ms) / 1_000 - step.seconds
    late = waited >= rollout.plan.patience_with(set(seen.lacking))
    note = (f"undecided {waited:.0f} s beyond its time: approve or abort",) if late else ()
    return Next(Act.WAIT, (*note, *verdict.why), for_person=late)


def _allowed(rollout: Rollout, why: tuple[str, ...]) -> tuple[str, ...]:
    """The reasons, with who has approved the step."""
    command = rollout.approved.get(rollout.step)
    return why if command is None else (str(command), *why)


def _after_comparison(rollout: Rollout) -> Next:
    found = rollout.compared
    if found is None:
        return Next(Act.COMPARE, ("it is to be compared",), rollout.step)
    if found.verdict == Decision.PROMOTE:
        return _forward(rollout, tuple(found.why))
    return _back(rollout, tuple(found.why), Outcome.REJECTED)


def _back(rollout: Rollout, why: tuple[str, ...], outcome: Outcome) -> Next:
    """To the revision from before the rollout, if it has moved anything."""
    if not rollout.moved:
        ended = Outcome.REJECTED if outcome is Outcome.ROLLED_BACK else outcome
        return Next(Act.END, why, rollout.step, Decision.ROLL_BACK, outcome=ended)
    move = Planned(rollout.revision, restores=rollout.base)
    return Next(Act.MOVE, why, rollout.step, Decision.ROLL_BACK, move, outcome)


def _forward(rollout: Rollout, why: tuple[str, ...]) -> Next:
    """To the next step, unless a person has something to say first."""
    step = rollout.at()
    if rollout.paused:
        by = next((str(command) for command in reversed(rollout.asked) if command.verb is Verb.PAUSE), "it is paused")
        return Next(Act.WAIT, (f"{by}: resume or abort", *why), for_person=True)
    if step is not None and step.approve and rollout.step not in rollout.approved:
        return Next(Act.WAIT, (f"{step} is done: approve or abort", *why), for_person=True)
    at = rollout.step + 1
    champion, candidate = rollout.rivals
    if at == len(rollout.plan.steps):
        if step is None or not step.watch:
            return Next(Act.END, why, rollout.step, Decision.PROMOTE, outcome=Outcome.COMPLETED)
        alone = Planned(rollout.revision, candidate.version, candidate.digest)
        return Next(Act.MOVE, why, rollout.step, Decision.PROMOTE, alone, Outcome.COMPLETED)
    begun = rollout.plan.steps[at]
    pairs = rollout.plan.pairs(at)
    match begun.kind:
        case Kind.COMPARE:
            return Next(Act.COMPARE, why, at)
        case Kind.SHADOW:
            move = Planned(rollout.revision, champion.version, champion.digest, shadow=candidate.version, pairs=pairs)
        case Kind.CANARY:
            move = Planned(rollout.revision, candidate.version, candidate.digest, begun.canary, pairs=pairs)
        case Kind.PROMOTE:
            before = champion.version if begun.watch else None
            kept = pairs if begun.watch else 0
            move = Planned(rollout.revision, candidate.version, candidate.digest, shadow=before, pairs=kept)
    outcome = Outcome.COMPLETED if begun.kind is Kind.PROMOTE and not begun.watch else None
    return Next(Act.MOVE, why, at, Decision.PROMOTE, move, outcome)
