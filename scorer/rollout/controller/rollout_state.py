"""The state of all rollouts, built from their records in the order of the topic. Pure.

One rollout runs at a time. A rollout that is started while another one runs is refused.
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

SILENT_SECONDS = 15.0  # without a status, which a running controller publishes every five seconds


@dataclass(slots=True)
class Rollout:
    """The state of one rollout.

    Attributes:
        base: The channel's revision before the rollout.
        revision: The channel's revision after the rollout's last move. If the channel is at a different revision, another
            process has moved it.
        began_ms: The start of the current step in Unix milliseconds.
        step: The index of the current step; -1 before the first step.
        pending: An intended move whose outcome is unknown.
        starts: The offsets from which the analysis of the current step reads scores and other answers, by partition.
        compared: The log entry with the result of the comparison step.
        asked: All commands of operators, the oldest first.
        approved: The command that approved each approved step, by the index of the step.
        aborted: The first command to abort.
        state: The last published status of the current step; None if there is none.
    """

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
        """The sequence number of the next log entry."""
        return self.log[-1].seq + 1

    @property
    def moved(self) -> bool:
        """Whether the rollout has moved the channel."""
        return self.revision != self.base

    def seconds_since_record(self, now: float) -> float:
        """Return the seconds since the last record about the rollout, at `now` (Unix seconds)."""
        last_ms = max(self.log[-1].at_ms, self.state.at_ms if self.state is not None else 0)
        return max(0.0, now - last_ms / 1_000)

    def judgement(self) -> dict[str, Any] | None:
        """Return the report of the newest analysis of the current step (of any step if the rollout has ended), or None."""
        # For an ended rollout without such a report, the last analysis in the log is returned.
        if self.state is not None and self.state.judgement is not None:
            return self.state.judgement
        if self.outcome is None:
            return None
        return next((entry.judgement for entry in reversed(self.log) if entry.judgement is not None), None)

    def at(self) -> PlanStep | None:
        """Return the current step; None before the first step."""
        return self.plan.steps[self.step] if self.step >= 0 else None


class RolloutLog:
    """All rollouts by id, the oldest first, and the ids of rollouts that were refused because another rollout was running."""

    def __init__(self) -> None:
        self.rollouts: dict[str, Rollout] = {}
        self.refused: set[str] = set()

    @property
    def newest(self) -> Rollout | None:
        """The rollout that was started last; None if there is none."""
        return next(reversed(self.rollouts.values()), None)

    @property
    def running(self) -> Rollout | None:
        """The rollout that has not ended; None if no rollout runs."""
        newest = self.newest
        return newest if newest is not None and newest.outcome is None else None

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Apply a record of the topic of rollouts. Unknown keys are ignored; unreadable records are logged and skipped."""
        parts = (key or b"").decode("utf-8", "replace").split("/")
        try:
            if len(parts) == 2 and parts[1] == STATE:
                if rollout := self.rollouts.get(parts[0]):
                    rollout.state = log_records.decode_status(value or b"")
            elif len(parts) == 3 and parts[1] == COMMAND:
                if rollout := self.rollouts.get(parts[0]):
                    _apply_command(rollout, log_records.decode_command(value or b""))
            elif len(parts) == 2 and parts[1].isdigit():
                self._entry(parts[0], int(parts[1]), log_records.decode_entry(value or b""))
        except (Fatal, ValueError) as error:
            log.warning("skipping the rollout record with the key %r: %.300s", key, error)

    def _entry(self, name: str, seq: int, entry: LogEntry) -> None:
        if (entry.rollout, entry.seq) != (name, seq):
            raise ValueError(
                f"the key does not match the record, which contains entry {entry.seq} of rollout {entry.rollout!r:.100}"
            )
        rollout = self.rollouts.get(name)
        if rollout is None:
            self._start(entry)
        elif seq < rollout.seq:
            return  # already applied: the writer of an entry applies it immediately
        elif seq > rollout.seq or rollout.outcome is not None:
            raise ValueError(f"the rollout has ended, or entries before this one are missing: its next entry is {rollout.seq}")
        elif not -1 <= entry.step < len(rollout.plan.steps):
            raise ValueError(
                f"the entry is for step {entry.step}, counted from 0, but the plan has {len(rollout.plan.steps)} steps"
            )
        else:
            _advance(rollout, entry)

    def _start(self, entry: LogEntry) -> None:
        if entry.kind is not EntryKind.STARTED or entry.champion is None or entry.candidate is None:
            raise ValueError("the entry does not start a rollout")
        if self.running is not None:
            self.refused.add(entry.rollout)
            return
        parsed_plan = plan.parse(entry.plan, entry.rollout)
        rivals = Contestants(_contest_version(entry.champion), _contest_version(entry.candidate))
        rollout = Rollout(entry.rollout, parsed_plan, rivals, entry.revision, entry.revision, entry.at_ms)
        rollout.log.append(entry)
        self.rollouts[entry.rollout] = rollout


def _contest_version(version: LoggedVersion) -> ContestVersion:
    return ContestVersion(version.digest, version.version)


def _apply_command(rollout: Rollout, command: OperatorCommand) -> None:
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
            rollout.pending = None
            rollout.revision = entry.revision
            rollout.step = entry.step
            rollout.starts = log_records.from_logged(entry.starts)
            rollout.began_ms = entry.at_ms
            rollout.state = None
        case EntryKind.COMPARED:
            rollout.step = entry.step
            rollout.compared = entry
            rollout.began_ms = entry.at_ms
        case EntryKind.ENDED:
            rollout.pending = None
            rollout.outcome = entry.outcome or Outcome.OVERTAKEN
        case EntryKind.STARTED:
            raise ValueError("the rollout has started already")
    rollout.log.append(entry)
