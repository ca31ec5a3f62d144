"""The rollout that follows a plan, as the first page shows it: its steps, what it waits for, and who decided what. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from scorer.console.analysis_view import AnalysisView, analysis_view
from scorer.console.state import ConsoleState
from scorer.rollout.controller.event_log import SILENT_SECONDS, Rollout
from scorer.rollout.controller.log_records import Entry, Kind, Outcome, Planned
from scorer.rollout.controller.plan import Step

ENTRIES = 50  # newest entries of the log
WAITS = 10
DONE, NOW, ENDED, NEXT = "done", "now", "ended", "next"


@dataclass(frozen=True, slots=True)
class StepView:
    """A step of the plan. `place` is done, now, ended (it went no further) or next; `wanted` is its bake time (s)."""

    name: str
    place: str
    wanted: int
    approve: bool


@dataclass(frozen=True, slots=True)
class CanarySample:
    """What the candidate of a canary is to get, of the keys, and has got, of the `events` sampled at this revision.
    `answered` is how many of its events the champion answered."""

    keys: float
    events: int
    found: float | None
    answered: int


@dataclass(frozen=True, slots=True)
class LogEntryView:
    """An entry of the log. `at` in Unix seconds; `revision` is the channel's from there on, 0: it did not move."""

    seq: int
    at: float
    what: str
    step: str
    by: str
    why: Sequence[str]
    revision: int


@dataclass(frozen=True, slots=True)
class RolloutPanel:
    """A rollout. `silent` is for how long nobody has told anything of it (s), `controller` who told last. `baked` and `wanted`
    (s) are its step's clock. `for_person`: it waits for a person's word. `judgement` is the last, and of its last step."""

    id: str
    step: int
    candidate: str
    champion: str
    outcome: str
    stages: Sequence[StepView]
    paused: bool
    aborted: str
    for_person: bool
    waits: Sequence[str]
    baked: float
    wanted: int
    controller: str
    silent: float
    judgement: AnalysisView | None
    psi_limit: float
    share: CanarySample | None
    log: Sequence[LogEntryView]
    log_left_out: int

    @property
    def running(self) -> bool:
        return not self.outcome

    @property
    def away(self) -> bool:
        """Whether a controller should have told something by now."""
        return self.running and self.silent >= SILENT_SECONDS


def panel(state: ConsoleState, now: float) -> RolloutPanel | None:
    """The newest rollout at `now` (Unix seconds), running or ended; None where there was none."""
    rollout = state.rollouts.newest
    if rollout is None:
        return None
    told = rollout.state
    step, running = rollout.at(), rollout.outcome is None
    answered = rollout.step in rollout.approved or rollout.aborted is not None
    return RolloutPanel(
        id=rollout.id,
        step=rollout.step,
        candidate=rollout.rivals.candidate.version,
        champion=rollout.rivals.champion.version,
        outcome=rollout.outcome or "",
        stages=_stages(rollout),
        paused=rollout.paused and running,
        aborted=rollout.aborted.by if rollout.aborted and running else "",
        for_person=running and told is not None and told.for_person and not answered,
        waits=told.waits[:WAITS] if told and running else [],
        baked=told.baked if told and told.step == rollout.step else 0.0,
        wanted=step.seconds if step and running else 0,
        controller=told.controller if told else "",
        silent=rollout.silent(now),
        judgement=analysis_view(rollout.judgement()),
        psi_limit=rollout.plan.rules.psi,
        share=_share(state, rollout) if running else None,
        log=[_logged(rollout, entry) for entry in rollout.log[: -ENTRIES - 1 : -1]],
        log_left_out=max(0, len(rollout.log) - ENTRIES),
    )


def pairs(state: ConsoleState) -> tuple[RolloutPanel, AnalysisView] | None:
    """The judgement of the rollout that runs, on events that both versions scored; None without such pairs."""
    found = panel(state, 0.0) if state.rollouts.running is not None else None
    if found is None or found.judgement is None or not found.judgement.pairs:
        return None
    return found, found.judgement


def _stages(rollout: Rollout) -> list[StepView]:
    completed = rollout.outcome is Outcome.COMPLETED

    def place(at: int) -> str:
        if completed or at < rollout.step:
            return DONE
        if at == rollout.step:
            return NOW if rollout.outcome is None else ENDED
        return NEXT

    return [StepView(str(step), place(at), step.seconds, step.approve) for at, step in enumerate(rollout.plan.steps)]


def _share(state: ConsoleState, rollout: Rollout) -> CanarySample | None:
    step = rollout.at()
    if step is None or step.canary is None:
        return None
    split = state.arms.split(rollout.revision)
    found = split.canary / split.events if split.events else None
    return CanarySample(step.canary / 100, split.events, found, split.answered)


def _logged(rollout: Rollout, entry: Entry) -> LogEntryView:
    steps = rollout.plan.steps
    step: Step | None = steps[entry.step] if 0 <= entry.step < len(steps) else None
    revision = entry.revision if entry.kind in (Kind.STARTED, Kind.MOVED) else 0
    return LogEntryView(
        entry.seq, entry.at_ms / 1_000, _what(rollout, entry), str(step) if step else "", entry.by, entry.why, revision
    )


def _what(rollout: Rollout, entry: Entry) -> str:
    verdict = f", {entry.verdict}" if entry.verdict else ""
    match entry.kind:
        case Kind.STARTED:
            return f"started with {rollout.rivals.candidate.version} beside {rollout.rivals.champion.version}"
        case Kind.COMPARED:
            return f"compared{verdict}"
        case Kind.INTENDED if entry.move is not None:
            return f"to move to {_aim(entry.move)}{verdict}"
        case Kind.ENDED:
            return f"ended: {entry.outcome or Outcome.OVERTAKEN}"
    return str(entry.kind)


def _aim(move: Planned) -> str:
    if move.restores is not None:
        return f"revision {move.restores} again"
    if move.canary is not None:
        return f"{move.to} for {move.canary} %"
    return f"{move.to} with {move.shadow} as its shadow" if move.shadow else move.to
