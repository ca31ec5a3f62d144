"""A rollout in one controller's hands: it looks, decides, writes what it intends, moves the channel, and writes the outcome.

Whoever begins a tenure fences those before it first, and reads the log only then: what they intended is known, and they can
intend nothing more.
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
from publisher.transactions.wait_for_decided import OpenTransactions
from scorer.models.registry_access import move_key, open_source
from scorer.rollout.controller import log_records
from scorer.rollout.controller.analysis_step import AnalysisSnapshot, StepAnalyzer
from scorer.rollout.controller.apply_move import MoveOvertaken, apply_move
from scorer.rollout.controller.comparison_step import ComparisonProcess
from scorer.rollout.controller.decide import ActionKind, NextAction, Observation, next_action
from scorer.rollout.controller.event_log import Rollout
from scorer.rollout.controller.log_records import STATE, EntryKind, LogEntry, Outcome, RolloutStatus
from scorer.rollout.controller.log_topic import RolloutLogTopic
from scorer.rollout.status_topic import StatusTopic, notify
from scorer.settings import Settings

log = logging.getLogger(__name__)

TELL_SECONDS = 5.0
JUDGE_AGAIN_SECONDS = 30.0  # before another try where a record does not read


class LeaderTerm:
    """`look` again and again. Everything raises Fatal where the broker refuses or is away, and Aborted where this tenure is
    over: another may have begun."""

    def __init__(
        self,
        settings: Settings,
        controller: str,
        config: Path,
        flags: Sequence[str],
        *,
        to_end: bool = False,
        context: Context | None = None,
        wrote: Callable[[LogEntry], None] = lambda _: None,
    ) -> None:
        """`to_end`: each look reads the answers to their end. `context` is checked while the broker is unavailable at the
        beginning. `wrote` is called with each entry that was written."""
        self._settings, self._controller = settings, controller
        self._store, self._key = open_source(settings), move_key(settings)
        self._wrote = wrote
        self._told_at = 0.0
        self._told: object = None
        self._move: ChannelMove | None = None
        self._unjudged, self._judge_at = "", 0.0
        with ExitStack() as undo:
            self._session = _session(settings, context)
            undo.callback(self._session.close)
            self._session.open()
            self._topic = RolloutLogTopic(settings)
            undo.callback(self._topic.close)
            self._status = StatusTopic(settings)
            undo.callback(self._status.close)
            self._comparing = ComparisonProcess(config, flags)
            undo.callback(self._comparing.close)
            self._judging = StepAnalyzer(settings, to_end=to_end)
            undo.callback(self._judging.close)
            self._undo = undo.pop_all()
        self.registry_away = ""
        """Why the registry cannot be asked; empty where it answers."""
        self.judged: AnalysisSnapshot | None = None
        """What the judge saw last, of a step that is judged."""

    @property
    def rollout(self) -> Rollout | None:
        """The one that runs."""
        return self._topic.ledger.running

    def close(self) -> None:
        self._undo.close()

    def look(self, seconds: float) -> NextAction | None:
        """Look for so many seconds, and do what is to be done; what that was. None where no rollout runs."""
        self._topic.look()
        if (rollout := self.rollout) is None:
            self._judging.close()
            self._comparing.close()
            self._topic.look(seconds)
            return None
        look: AnalysisSnapshot | None = None
        try:
            if rollout.pending is not None:
                self._carry_out(rollout, rollout.pending)
                return NextAction(ActionKind.MOVE, tuple(rollout.log[-1].why))
            look = self.judged = self._judge(rollout, seconds)
            found = next_action(rollout, self._seen(rollout, look))
            self._do(rollout, found, look)
            self.registry_away = ""
        except RegistryError as error:
            if self.registry_away != str(error):
                log.warning("nothing is decided while the registry cannot be asked: %s", error)
            self.registry_away = str(error)
            found = NextAction(ActionKind.WAIT, (f"the registry: {error}",), rollout.step, for_person=not error.transient)
            self._tell(rollout, found, look)
        if look is None and found.act in (ActionKind.WAIT, ActionKind.COMPARE):
            self._topic.look(seconds)
        return found

    def _judge(self, rollout: Rollout, seconds: float) -> AnalysisSnapshot | None:
        """None where the step is not judged, or cannot be: people may end it all the same."""
        step = rollout.at()
        if step is None or not step.judged:
            self._unjudged = ""
            return None
        if self._unjudged and time.monotonic() < self._judge_at:
            return None
        move = self._newest_move(rollout)
        rolled = self._status.look(move) if move is not None else None
        try:
            look = self._judging.look(rollout, step, rolled, seconds, shadowed=self._status.shadowed())
        except Fatal as error:
            if error.exit_code == UNREACHABLE:
                raise
            log.warning("the judge cannot read: %s", error)
            self._judging.close()
            self._unjudged, self._judge_at = f"the judge cannot read: {error}", time.monotonic() + JUDGE_AGAIN_SECONDS
            return None
        self._unjudged = ""
        return look

    def _newest_move(self, rollout: Rollout) -> ChannelMove | None:
        """That which brought the channel to where this rollout has it; None while the registry does not tell."""
        if self._move is None or self._move.revision != rollout.revision:
            try:
                moves = channel.history(self._store, self._settings.model.tag, rollout.revision - 1)
            except RegistryError:
                return None
            self._move = next((move for move in moves if move.revision == rollout.revision), None)
        return self._move

    def _seen(self, rollout: Rollout, look: AnalysisSnapshot | None) -> Observation:
        revision = channel.resolve(self._store, self._settings.model.tag).revision
        now_ms = time.time_ns() // 1_000_000
        if revision != rollout.revision:
            return Observation(now_ms, revision, moved_by=self._mover(revision))
        move = self._newest_move(rollout)
        refused: list[str] = []
        if move is not None and rollout.moved:
            self._status.look(move)
            refused = self._status.refusals(move, rollout.rivals.candidate.version)
        if look is None:
            return Observation(now_ms, revision, refused)
        return Observation(now_ms, revision, refused, look.verdict, look.lacking)

    def _mover(self, revision: int) -> str:
        """Who moved the channel to a revision, and why."""
        moves = channel.history(self._store, self._settings.model.tag, revision - 1)
        return next((f"{move.actor} ({move.reason})" for move in moves if move.revision == revision), "somebody")

    def _do(self, rollout: Rollout, found: NextAction, look: AnalysisSnapshot | None) -> None:
        match found.act:
            case ActionKind.COMPARE:
                self._compare(rollout, found)
            case ActionKind.MOVE:
                self._intend(rollout, found, look)
                self._carry_out(rollout, rollout.log[-1])
            case ActionKind.END:
                self._write(self._entry(rollout, EntryKind.ENDED, found, look))
            case ActionKind.WAIT:
                unread = NextAction(ActionKind.WAIT, (self._unjudged,), for_person=True)
                self._tell(rollout, unread if look is None and self._unjudged else found, look)

    def _compare(self, rollout: Rollout, found: NextAction) -> None:
        ended = self._comparing.look(rollout.id, rollout.plan, rollout.rivals.candidate.digest)
        if ended is None:
            self._tell(rollout, NextAction(ActionKind.WAIT, (self._comparing.waits,)), None)
            return
        verdict, why, report = ended
        said = NextAction(ActionKind.COMPARE, (why,), found.step, verdict)
        self._write(self._entry(rollout, EntryKind.COMPARED, said, None, comparison=report))

    def _intend(self, rollout: Rollout, found: NextAction, look: AnalysisSnapshot | None) -> None:
        self._write(self._entry(rollout, EntryKind.INTENDED, found, look, move=found.move))

    def _carry_out(self, rollout: Rollout, intended: LogEntry) -> None:
        """Make the move that was intended, and write how it ended."""
        try:
            move = apply_move(self._store, self._settings.model.tag, intended, self._key)
        except MoveOvertaken as error:
            ended = NextAction(ActionKind.END, (str(error),), intended.step, outcome=Outcome.OVERTAKEN)
            self._write(self._entry(rollout, EntryKind.ENDED, ended, None))
            return
        except RegistryError as error:
            if error.transient or (intended.move is not None and intended.move.restores is not None):
                raise
            self._give_up(rollout, f"the registry refuses the move: {error}")
            return
        self._told_at = 0.0
        try:
            notify(self._settings, move, self._store.repository)
        except Fatal as error:
            log.warning("%s; the scorers see the move at their next poll", error)
        starts = log_records.to_logged(self._judging.ends())
        done = NextAction(ActionKind.MOVE, tuple(intended.why), intended.step, intended.verdict)
        made = self._entry(rollout, EntryKind.MOVED, done, None, revision=move.revision, starts=starts)
        if intended.outcome is None:
            self._write(made)
            return
        ended = NextAction(ActionKind.END, tuple(intended.why), intended.step, intended.verdict, outcome=intended.outcome)
        self._write(made, self._entry(rollout, EntryKind.ENDED, ended, None, seq=made.seq + 1, revision=move.revision))

    def _give_up(self, rollout: Rollout, why: str) -> None:
        """Go back: the way forward is barred."""
        found = next_action(rollout, Observation(0, rollout.revision, [why]))
        if not rollout.moved:
            found = NextAction(ActionKind.END, (why,), rollout.step, outcome=Outcome.REJECTED)
        self._do(rollout, found, None)

    def _entry(
        self, rollout: Rollout, kind: EntryKind, found: NextAction, look: AnalysisSnapshot | None, **more: Any
    ) -> LogEntry:
        entry = LogEntry(
            rollout.id, rollout.seq, kind, time.time_ns() // 1_000_000, self._controller, found.step, list(found.why),
            revision=rollout.revision, verdict=found.verdict, outcome=found.outcome,
        )  # fmt: skip
        judged = {} if look is None else {"judgement": look.judgement, "obstacles": list(look.obstacles)}
        return replace(entry, **judged, **more)

    def _write(self, *written: LogEntry) -> None:
        """In one transaction. The ledger has them then."""
        topic = self._settings.rollouts_topic
        records = [(topic, log_records.encode(each), f"{each.rollout}/{each.seq}".encode(), -1, 0, None) for each in written]
        self._session.publish(records)
        for each in written:
            log.info("%s: %s: %s", each.rollout, each.kind, "; ".join(each.why))
            self._topic.ledger.hear(f"{each.rollout}/{each.seq}".encode(), log_records.encode(each))
            self._wrote(each)

    def _tell(self, rollout: Rollout, found: NextAction, look: AnalysisSnapshot | None) -> None:
        """How it stands, every few seconds, and at once where it waits for something else."""
        about = rollout.step, found.for_person, rollout.paused
        if about == self._told and time.monotonic() < self._told_at + TELL_SECONDS:
            return
        self._told, self._told_at = about, time.monotonic()
        now_ms = time.time_ns() // 1_000_000
        state = RolloutStatus(self._controller, now_ms, rollout.step, waits=list(found.why), for_person=found.for_person)
        if look is not None:
            state = replace(state, baked=look.bake.baked, seen=look.bake.seen, judgement=look.judgement)
        topic, key = self._settings.rollouts_topic, f"{rollout.id}/{STATE}".encode()
        self._session.publish([(topic, log_records.encode(state), key, -1, 0, None)])
        rollout.state = state


def _session(settings: Settings, context: Context | None) -> TransactionSession:
    name, seconds = f"{settings.name}.rollout", settings.kafka.transaction_timeout_ms / 1_000

    def producer(transactional_id: str) -> Producer:
        return kafka.warm_up(kafka.transactional_producer(settings.kafka, transactional_id, name), settings.rollouts_topic)

    opened = OpenTransactions(settings.kafka, name, (settings.rollouts_topic,))
    ids = transactional_ids(f"{settings.name}/rollout")
    return TransactionSession(producer, ids, transaction_seconds=seconds, context=context, wait_until_decided=opened.wait)
