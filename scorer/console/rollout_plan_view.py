"""The view of the newest rollout: the steps of its plan, its reasons to wait, its last analysis and its log. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from scorer.console.analysis_view import AnalysisView, analysis_view
from scorer.console.state import ConsoleState
from scorer.rollout.controller.log_records import EntryKind, LogEntry, Outcome, PlannedMove
from scorer.rollout.controller.plan import PlanStep
from scorer.rollout.controller.rollout_state import SILENT_SECONDS, Rollout

ENTRIES = 50  # newest entries of the log
WAITS = 10
DONE = "done"
NOW = "now"
ENDED = "ended"
NEXT = "next"


@dataclass(frozen=True, slots=True)
class StepView:
    """A step of the plan for display.

    Attributes:
        place: The progress: done, now (the current step), next (not reached yet), or ended (the rollout ended in this step).
        wanted: The bake time that the step requires, in seconds.
        approve: Whether an operator must approve the next step.
    """

    name: str
    place: str
    wanted: int
    approve: bool


@dataclass(frozen=True, slots=True)
class CanarySample:
    """The canary's planned share of the keys, compared with its share of the sampled events.

    Attributes:
        keys: The planned share of the keys.
        events: The number of sampled events that were scored at the channel's current revision.
        measured: The share of these events that belongs to the canary; None without events.
        answered: The number of the canary's events that the champion scored instead of the canary.
    """

    keys: float
    events: int
    measured: float | None
    answered: int


@dataclass(frozen=True, slots=True)
class LogEntryView:
    """An entry of the rollout's log for display.

    Attributes:
        at: The time in Unix seconds.
        revision: The channel's revision after the start or the move that the entry records; 0 for other entries.
    """

    seq: int
    at: float
    event: str
    step: str
    by: str
    reasons: Sequence[str]
    revision: int


@dataclass(frozen=True, slots=True)
class RolloutPanel:
    """A rollout for display.

    Attributes:
        aborted: The operator who has asked to abort the running rollout; empty if none has.
        baked: How long the current step has baked so far, in seconds.
        wanted: The bake time that the current step needs, in seconds.
        for_person: Whether the rollout waits for the approval of an operator.
        waits: The reasons why the rollout waits.
        controller: The name of the controller that reported last.
        silent: The seconds since the last record about the rollout.
        analysis: The newest analysis of the current step, or the last analysis of an ended rollout; None if there is none.
        psi_limit: The largest allowed population stability index between both versions' scores.
        share: The canary's planned share of the keys and its measured share of the events; None unless a canary step runs.
    """

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
    analysis: AnalysisView | None
    psi_limit: float
    share: CanarySample | None
    log: Sequence[LogEntryView]
    log_left_out: int

    @property
    def running(self) -> bool:
        """Whether the rollout has not ended."""
        return not self.outcome

    @property
    def controller_silent(self) -> bool:
        """Whether the rollout is running, and its controller has not reported for SILENT_SECONDS."""
        return self.running and self.silent >= SILENT_SECONDS


def panel(state: ConsoleState, now: float) -> RolloutPanel | None:
    """Return the newest rollout at `now` (Unix seconds), running or ended; None if there is none."""
    rollout = state.rollouts.newest
    if rollout is None:
        return None
    report = rollout.state
    step = rollout.at()
    running = rollout.outcome is None
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
        for_person=running and report is not None and report.for_person and not answered,
        waits=report.waits[:WAITS] if report and running else [],
        baked=report.baked if report and report.step == rollout.step else 0.0,
        wanted=step.seconds if step and running else 0,
        controller=report.controller if report else "",
        silent=rollout.seconds_since_record(now),
        analysis=analysis_view(rollout.judgement()),
        psi_limit=rollout.plan.rules.psi,
        share=_share(state, rollout) if running else None,
        log=[_logged(rollout, entry) for entry in rollout.log[: -ENTRIES - 1 : -1]],
        log_left_out=max(0, len(rollout.log) - ENTRIES),
    )


def pairs(state: ConsoleState) -> tuple[RolloutPanel, AnalysisView] | None:
    """Return the running rollout with its last analysis of pairs (events that both versions scored).

    Returns None if no rollout is running, if it has no analysis, or if the analysis has no event that both versions scored.
    """
    rollout = panel(state, 0.0) if state.rollouts.running is not None else None
    if rollout is None or rollout.analysis is None or not rollout.analysis.pairs:
        return None
    return rollout, rollout.analysis


def _stages(rollout: Rollout) -> list[StepView]:
    completed = rollout.outcome is Outcome.COMPLETED

    def progress(number: int) -> str:
        if completed or number < rollout.step:
            return DONE
        if number == rollout.step:
            return NOW if rollout.outcome is None else ENDED
        return NEXT

    return [StepView(str(step), progress(number), step.seconds, step.approve) for number, step in enumerate(rollout.plan.steps)]


def _share(state: ConsoleState, rollout: Rollout) -> CanarySample | None:
    step = rollout.at()
    if step is None or step.canary is None:
        return None
    split = state.arms.split(rollout.revision)
    measured = split.canary / split.events if split.events else None
    return CanarySample(step.canary / 100, split.events, measured, split.answered)


def _logged(rollout: Rollout, entry: LogEntry) -> LogEntryView:
    steps = rollout.plan.steps
    step: PlanStep | None = steps[entry.step] if 0 <= entry.step < len(steps) else None
    revision = entry.revision if entry.kind in (EntryKind.STARTED, EntryKind.MOVED) else 0
    return LogEntryView(
        entry.seq, entry.at_ms / 1_000, _event(rollout, entry), str(step) if step else "", entry.by, entry.why, revision
    )


def _event(rollout: Rollout, entry: LogEntry) -> str:
    verdict = f", {entry.verdict}" if entry.verdict else ""
    match entry.kind:
        case EntryKind.STARTED:
            return f"started: candidate {rollout.rivals.candidate.version}, champion {rollout.rivals.champion.version}"
        case EntryKind.COMPARED:
            return f"compared{verdict}"
        case EntryKind.INTENDED if entry.move is not None:
            return f"to move to {_target(entry.move)}{verdict}"
        case EntryKind.ENDED:
            return f"ended: {entry.outcome or Outcome.OVERTAKEN}"
    return str(entry.kind)


def _target(move: PlannedMove) -> str:
    if move.restores is not None:
        return f"revision {move.restores} (restored)"
    if move.canary is not None:
        return f"{move.to} as canary for {move.canary} %"
    return f"{move.to} with shadow {move.shadow}" if move.shadow else move.to
