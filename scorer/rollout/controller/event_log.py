"""Rollouts as their records make them, in the order of the topic. Pure.

One rollout runs at a time. One that is started while another runs is not taken up.
"""

import logging
from dataclasses import dataclass, field
from typing import Any

from publisher.errors import Fatal
from publisher.kafka.partitions import Offsets
from scorer.rollout.canary_analysis.contestants import Contestants, ContestVersion
from scorer.rollout.controller import log_records, plan
from scorer.rollout.controller.log_records import (
    COMMAND,
    STATE,
    EntryKind,
    LogEntry,
    LoggedVersion,
    OperatorCommand,
    Outcome,
    RolloutStatus,
    Verb,
)
from scorer.rollout.controller.plan import PlanStep, RolloutPlan

log = logging.getLogger(__name__)

SILENT_SECONDS = 15.0  # a controller tells of a rollout every five


@dataclass(slots=True)
class Rollout:
    """`step` is -1 before the first; `began_ms` is when it began (Unix). `revision` is what the channel has to be at, `base`
    what it was at before. `pending` is a move whose end nobody knows. `starts` is where the answers of this step begin.
    `asked` is all that people have asked for, `approved` by step."""

    id: str
    plan: RolloutPlan
    rivals: Contestants
    base: int
    revision: int
    began_ms: int
    step: int = -1
    pending: LogEntry | None = None
    starts: Offsets = field(default_factory=dict)
    compared: LogEntry | None = None
    asked: list[OperatorCommand] = field(default_factory=list)
    paused: bool = False
    approved: dict[int, OperatorCommand] = field(default_factory=dict)
    aborted: OperatorCommand | None = None
    outcome: Outcome | None = None
    log: list[LogEntry] = field(default_factory=list)
    state: RolloutStatus | None = None

    @property
    def seq(self) -> int:
        """Of the next entry."""
        return self.log[-1].seq + 1

    @property
    def moved(self) -> bool:
        """Whether the channel is not where it was."""
        return self.revision != self.base

    def silent(self, now: float) -> float:
        """For how many seconds nothing was told of it, at `now` (Unix seconds)."""
        last_ms = max(self.log[-1].at_ms, self.state.at_ms if self.state is not None else 0)
        return max(0.0, now - last_ms / 1_000)

    def judgement(self) -> dict[str, Any] | None:
        """The newest, of the step that it is at; of one that has ended the last that decided something."""
        if self.state is not None and self.state.judgement is not None:
            return self.state.judgement
        if self.outcome is None:
            return None
        return next((entry.judgement for entry in reversed(self.log) if entry.judgement is not None), None)

    def at(self) -> PlanStep | None:
        """The step that it is at; None before the first."""
        return self.plan.steps[self.step] if self.step >= 0 else None


class RolloutLog:
    """`rollouts` by id, in the order of their starts. `refused` are the ids of those that were started while another ran."""

    def __init__(self) -> None:
        self.rollouts: dict[str, Rollout] = {}
        self.refused: set[str] = set()

    @property
    def newest(self) -> Rollout | None:
        return next(reversed(self.rollouts.values()), None)

    @property
    def running(self) -> Rollout | None:
        """The one that has not ended."""
        newest = self.newest
        return newest if newest is not None and newest.outcome is None else None

    def hear(self, key: bytes | None, value: bytes | None) -> None:
        """Take in a record. Others' records, and what does not read, change nothing."""
        parts = (key or b"").decode("utf-8", "replace").split("/")
        try:
            if len(parts) == 2 and parts[1] == STATE:
                if rollout := self.rollouts.get(parts[0]):
                    rollout.state = log_records.decode_status(value or b"")
            elif len(parts) == 3 and parts[1] == COMMAND:
                if rollout := self.rollouts.get(parts[0]):
                    _obey(rollout, log_records.decode_command(value or b""))
            elif len(parts) == 2 and parts[1].isdigit():
                self._entry(parts[0], int(parts[1]), log_records.decode_entry(value or b""))
        except (Fatal, ValueError) as error:
            log.warning("a record of rollouts with the key %r does not read: %.300s", key, error)

    def _entry(self, name: str, seq: int, entry: LogEntry) -> None:
        if (entry.rollout, entry.seq) != (name, seq):
            raise ValueError(f"it is entry {entry.seq} of {entry.rollout!r:.100}")
        rollout = self.rollouts.get(name)
        if rollout is None:
            self._start(entry)
        elif seq < rollout.seq:
            return  # known: who writes an entry takes it in at once
        elif seq > rollout.seq or rollout.outcome is not None:
            raise ValueError(f"entry {rollout.seq} would be the next, if any")
        elif not -1 <= entry.step < len(rollout.plan.steps):
            raise ValueError(f"it is of step {entry.step}, the plan has {len(rollout.plan.steps)}")
        else:
            _advance(rollout, entry)

    def _start(self, entry: LogEntry) -> None:
        if entry.kind is not EntryKind.STARTED or entry.champion is None or entry.candidate is None:
            raise ValueError("it starts nothing")
        if self.running is not None:
            self.refused.add(entry.rollout)
            return
        made = plan.parse(entry.plan, entry.rollout)
        rivals = Contestants(_named(entry.champion), _named(entry.candidate))
        rollout = Rollout(entry.rollout, made, rivals, entry.revision, entry.revision, entry.at_ms)
        rollout.log.append(entry)
        self.rollouts[entry.rollout] = rollout


def _named(version: LoggedVersion) -> ContestVersion:
    return ContestVersion(version.digest, version.version)


def _obey(rollout: Rollout, command: OperatorCommand) -> None:
    rollout.asked.append(command)
    match command.verb:
        case Verb.PAUSE | Verb.RESUME:
            rollout.paused = command.verb is Verb.PAUSE
        case Verb.APPROVE:
            rollout.approved[command.step] = command
        case Verb.ABORT:
            rollout.aborted = rollout.aborted or command


def _advance(rollout: Rollout, entry: LogEntry) -> None:
    match entry.kind:
        case EntryKind.INTENDED:
            rollout.pending = entry
        case EntryKind.MOVED:
            rollout.pending, rollout.revision, rollout.step = None, entry.revision, entry.step
            rollout.starts, rollout.began_ms, rollout.state = log_records.from_logged(entry.starts), entry.at_ms, None
        case EntryKind.COMPARED:
            rollout.step, rollout.compared, rollout.began_ms = entry.step, entry, entry.at_ms
        case EntryKind.ENDED:
            rollout.pending, rollout.outcome = None, entry.outcome or Outcome.OVERTAKEN
        case EntryKind.STARTED:
            raise ValueError("it has started before")
    rollout.log.append(entry)
