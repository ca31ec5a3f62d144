"""Run a rollout while this controller leads: observe, decide, log the intent, move the channel, log the outcome.

A new leader fences earlier leaders before it reads the log. The log then contains every move that earlier leaders intended, and
earlier leaders can add no further entries.
"""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from msgspec.structs import replace

from model_registry.channels import channel
from model_registry.channels.history import ChannelMove
from model_registry.errors import RegistryError
from publisher.errors import UNREACHABLE, Fatal
from publisher.kafka import clients as kafka
from publisher.runtime.context import Context
from publisher.transactions.exactly_once import TransactionSession
from publisher.transactions.transactional_ids import transactional_ids
from publisher.transactions.wait_for_open_transactions import OpenTransactions
from scorer.models.registry_access import move_key, open_source
from scorer.rollout.controller import log_records
from scorer.rollout.controller.analysis_step import AnalysisSnapshot, StepAnalyzer
from scorer.rollout.controller.apply_move import MoveOvertaken, apply_move
from scorer.rollout.controller.comparison_step import ComparisonProcess
from scorer.rollout.controller.log_records import STATE, EntryKind, LogEntry, Outcome, RolloutStatus
from scorer.rollout.controller.log_topic import RolloutLogTopic
from scorer.rollout.controller.next_action import ActionKind, NextAction, Observation, next_action
from scorer.rollout.controller.rollout_state import Rollout
from scorer.rollout.status_topic import StatusTopic, notify
from scorer.settings import Settings

log = logging.getLogger(__name__)

STATUS_SECONDS = 5.0
ANALYSIS_RETRY_SECONDS = 30.0  # between a read error and the next analysis


class LeaderTerm:
    """One term of this controller as the leader. The caller must call `run_cycle` repeatedly.

    All methods raise Fatal if the broker is unavailable or denies access, and Aborted if another controller has taken over.
    """

    def __init__(
        self,
        settings: Settings,
        controller: str,
        config: Path,
        flags: Sequence[str],
        *,
        to_end: bool = False,
        context: Context | None = None,
        on_write: Callable[[LogEntry], None] = lambda _: None,
    ) -> None:
        """Fence earlier leaders and read the log.

        Args:
            settings: The settings.
            controller: The name of this controller.
            config: The configuration file, for the comparison process.
            flags: The settings flags, for the comparison process.
            to_end: Whether each cycle reads the topics of scores, dead letters and shadow answers to their ends.
            context: Its cancellation check is called repeatedly while the broker is unavailable at the start of the term.
            on_write: Called with each log entry that this term has written.
        """
        self._settings = settings
        self._controller = controller
        self._store = open_source(settings)
        self._key = move_key(settings)
        self._on_write = on_write
        self._status_sent_at = 0.0
        self._status_key: object = None
        self._move: ChannelMove | None = None
        self._analysis_error = ""
        self._analysis_retry_at = 0.0
        with ExitStack() as undo:
            self._session = _session(settings, context)
            undo.callback(self._session.close)
            self._session.open()
            self._topic = RolloutLogTopic(settings)
            undo.callback(self._topic.close)
            self._status = StatusTopic(settings)
            undo.callback(self._status.close)
            self._comparison = ComparisonProcess(config, flags)
            undo.callback(self._comparison.close)
            self._analyzer = StepAnalyzer(settings, to_end=to_end)
            undo.callback(self._analyzer.close)
            self._undo = undo.pop_all()
        self.registry_error = ""
        """Why the registry is unavailable; empty if it is available."""
        self.snapshot: AnalysisSnapshot | None = None
        """The last analysis of the current step."""

    @property
    def rollout(self) -> Rollout | None:
        """The running rollout; None if no rollout runs."""
        return self._topic.ledger.running

    def close(self) -> None:
        """Close all clients and end the comparison process."""
        self._undo.close()

    def run_cycle(self, seconds: float) -> NextAction | None:
        """Execute the next action of the rollout, and return the action. Return None if no rollout runs.

        A pending channel move is executed at once. Otherwise, the action follows from up to `seconds` of observation.
        """
        self._topic.poll()
        if (rollout := self.rollout) is None:
            self._analyzer.close()
            self._comparison.close()
            self._topic.poll(seconds)
            return None
        snapshot: AnalysisSnapshot | None = None
        try:
            if rollout.pending is not None:
                self._execute_move(rollout, rollout.pending)
                return NextAction(ActionKind.MOVE, tuple(rollout.log[-1].why))
            snapshot = self._analyze(rollout, seconds)
            self.snapshot = snapshot
            action = next_action(rollout, self._observe(rollout, snapshot))
            self._do(rollout, action, snapshot)
            self.registry_error = ""
        except RegistryError as error:
            if self.registry_error != str(error):
                log.warning("no decision while the registry is unavailable: %s", error)
            self.registry_error = str(error)
            action = NextAction(ActionKind.WAIT, (f"the registry: {error}",), rollout.step, for_person=not error.transient)
            self._publish_status(rollout, action, snapshot)
        if snapshot is None and action.act in (ActionKind.WAIT, ActionKind.COMPARE):
            self._topic.poll(seconds)
        return action

    def _analyze(self, rollout: Rollout, seconds: float) -> AnalysisSnapshot | None:
        """Analyze the current step; return None if the step is not analysed or its answers cannot be read."""
        # A read error does not end the term, so that an operator can still end the rollout.
        step = rollout.at()
        if step is None or not step.judged:
            self._analysis_error = ""
            return None
        if self._analysis_error and time.monotonic() < self._analysis_retry_at:
            return None
        move = self._move_to_revision(rollout)
        progress = self._status.poll(move) if move is not None else None
        try:
            snapshot = self._analyzer.analyze(rollout, step, progress, seconds, shadowed=self._status.shadowed())
        except Fatal as error:
            if error.exit_code == UNREACHABLE:
                raise
            log.warning("cannot read the scores for the analysis: %s", error)
            self._analyzer.close()
            self._analysis_error = f"cannot read the scores for the analysis: {error}"
            self._analysis_retry_at = time.monotonic() + ANALYSIS_RETRY_SECONDS
            return None
        self._analysis_error = ""
        return snapshot

    def _move_to_revision(self, rollout: Rollout) -> ChannelMove | None:
        """Return the channel move that created the rollout's current revision.

        Returns None if the channel's history has no such move, or if the registry is unavailable.
        """
        if self._move is None or self._move.revision != rollout.revision:
            try:
                moves = channel.history(self._store, self._settings.model.tag, rollout.revision - 1)
            except RegistryError:
                return None
            self._move = next((move for move in moves if move.revision == rollout.revision), None)
        return self._move

    def _observe(self, rollout: Rollout, snapshot: AnalysisSnapshot | None) -> Observation:
        revision = channel.resolve(self._store, self._settings.model.tag).revision
        now_ms = time.time_ns() // 1_000_000
        if revision != rollout.revision:
            return Observation(now_ms, revision, moved_by=self._mover(revision))
        move = self._move_to_revision(rollout)
        refused: list[str] = []
        if move is not None and rollout.moved:
            self._status.poll(move)
            refused = self._status.refusals(move, rollout.rivals.candidate.version)
        if snapshot is None:
            return Observation(now_ms, revision, refused)
        return Observation(now_ms, revision, refused, snapshot.verdict, snapshot.failing_rules)

    def _mover(self, revision: int) -> str:
        """Return the actor of the channel move that created a revision, followed by the reason of the move."""
        moves = channel.history(self._store, self._settings.model.tag, revision - 1)
        return next((f"{move.actor} ({move.reason})" for move in moves if move.revision == revision), "another process")

    def _do(self, rollout: Rollout, action: NextAction, snapshot: AnalysisSnapshot | None) -> None:
        match action.act:
            case ActionKind.COMPARE:
                self._compare(rollout, action)
            case ActionKind.MOVE:
                self._intend(rollout, action, snapshot)
                self._execute_move(rollout, rollout.log[-1])
            case ActionKind.END:
                self._write(self._entry(rollout, EntryKind.ENDED, action, snapshot))
            case ActionKind.WAIT:
                unread = NextAction(ActionKind.WAIT, (self._analysis_error,), for_person=True)
                self._publish_status(rollout, unread if snapshot is None and self._analysis_error else action, snapshot)

    def _compare(self, rollout: Rollout, action: NextAction) -> None:
        result = self._comparison.poll(rollout.id, rollout.plan, rollout.rivals.candidate.digest)
        if result is None:
            self._publish_status(rollout, NextAction(ActionKind.WAIT, (self._comparison.waiting_for,)), None)
            return
        verdict, reason, report = result
        compared = NextAction(ActionKind.COMPARE, (reason,), action.step, verdict)
        self._write(self._entry(rollout, EntryKind.COMPARED, compared, None, comparison=report))

    def _intend(self, rollout: Rollout, action: NextAction, snapshot: AnalysisSnapshot | None) -> None:
        self._write(self._entry(rollout, EntryKind.INTENDED, action, snapshot, move=action.move))

    def _execute_move(self, rollout: Rollout, intended: LogEntry) -> None:
        """Move the channel as intended, and log the outcome."""
        try:
            move = apply_move(self._store, self._settings.model.tag, intended, self._key)
        except MoveOvertaken as error:
            ended = NextAction(ActionKind.END, (str(error),), intended.step, outcome=Outcome.OVERTAKEN)
            self._write(self._entry(rollout, EntryKind.ENDED, ended, None))
            return
        except RegistryError as error:
            if error.transient or (intended.move is not None and intended.move.restores is not None):
                raise
            self._reject_move(rollout, f"the registry refuses the move: {error}")
            return
        self._status_sent_at = 0.0
        try:
            notify(self._settings, move, self._store.repository)
        except Fatal as error:
            log.warning("%s; the scorers detect the move at their next poll", error)
        starts = log_records.to_logged(self._analyzer.ends())
        completed = NextAction(ActionKind.MOVE, tuple(intended.why), intended.step, intended.verdict)
        moved = self._entry(rollout, EntryKind.MOVED, completed, None, revision=move.revision, starts=starts)
        if intended.outcome is None:
            self._write(moved)
            return
        ended = NextAction(ActionKind.END, tuple(intended.why), intended.step, intended.verdict, outcome=intended.outcome)
        self._write(moved, self._entry(rollout, EntryKind.ENDED, ended, None, seq=moved.seq + 1, revision=move.revision))

    def _reject_move(self, rollout: Rollout, reason: str) -> None:
        """Roll back because the registry has refused a move. If the rollout has not moved the channel yet, end it instead."""
        action = next_action(rollout, Observation(0, rollout.revision, [reason]))
        if not rollout.moved:
            action = NextAction(ActionKind.END, (reason,), rollout.step, outcome=Outcome.REJECTED)
        self._do(rollout, action, None)

    def _entry(
        self, rollout: Rollout, kind: EntryKind, action: NextAction, snapshot: AnalysisSnapshot | None, **fields: Any
    ) -> LogEntry:
        entry = LogEntry(
            rollout.id,
            rollout.seq,
            kind,
            time.time_ns() // 1_000_000,
            self._controller,
            action.step,
            list(action.reasons),
            revision=rollout.revision,
            verdict=action.verdict,
            outcome=action.outcome,
        )
        analysis = {} if snapshot is None else {"judgement": snapshot.judgement, "obstacles": list(snapshot.obstacles)}
        return replace(entry, **analysis, **fields)

    def _write(self, *entries: LogEntry) -> None:
        """Write entries to the topic in one transaction, and apply them to this process's copy of the log."""
        topic = self._settings.rollouts_topic
        records = [
            (topic, log_records.encode(entry), f"{entry.rollout}/{entry.seq}".encode(), -1, 0, None) for entry in entries
        ]
        self._session.publish(records)
        for entry in entries:
            log.info("%s: %s: %s", entry.rollout, entry.kind, "; ".join(entry.why))
            self._topic.ledger.apply(f"{entry.rollout}/{entry.seq}".encode(), log_records.encode(entry))
            self._on_write(entry)

    def _publish_status(self, rollout: Rollout, action: NextAction, snapshot: AnalysisSnapshot | None) -> None:
        """Publish the status of the rollout if the last status is older than STATUS_SECONDS or no longer correct."""
        # It is no longer correct if the step has changed, if the rollout was paused or resumed, or if it has begun or ceased to
        # wait for an operator.
        status_key = rollout.step, action.for_person, rollout.paused
        if status_key == self._status_key and time.monotonic() < self._status_sent_at + STATUS_SECONDS:
            return
        self._status_key = status_key
        self._status_sent_at = time.monotonic()
        now_ms = time.time_ns() // 1_000_000
        state = RolloutStatus(self._controller, now_ms, rollout.step, waits=list(action.reasons), for_person=action.for_person)
        if snapshot is not None:
            state = replace(state, baked=snapshot.bake.baked, seen=snapshot.bake.seen, judgement=snapshot.judgement)
        topic = self._settings.rollouts_topic
        key = f"{rollout.id}/{STATE}".encode()
        self._session.publish([(topic, log_records.encode(state), key, -1, 0, None)])
        rollout.state = state


def _session(settings: Settings, context: Context | None) -> TransactionSession:
    name = f"{settings.name}.rollout"
    seconds = settings.kafka.transaction_timeout_ms / 1_000

    def producer(transactional_id: str) -> Producer:
        return kafka.warm_up(kafka.transactional_producer(settings.kafka, transactional_id, name), settings.rollouts_topic)

    opened = OpenTransactions(settings.kafka, name, (settings.rollouts_topic,))
    ids = transactional_ids(f"{settings.name}/rollout")
    return TransactionSession(producer, ids, transaction_seconds=seconds, context=context, wait_until_decided=opened.wait)
