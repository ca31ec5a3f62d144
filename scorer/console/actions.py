"""The actions of the console: move the channel, replay dead letters, and send operators' commands to a rollout's controller.

Actions run one at a time in a separate thread. Each action calls the same function as its CLI command. The console's state
records the command and the result.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count

from model_registry.channels import channel as channels
from model_registry.channels.history import ChannelMove
from model_registry.channels.move_request import MoveRequest
from model_registry.errors import RegistryError
from model_registry.stores.base import Store
from publisher.errors import Aborted, Fatal
from publisher.runtime.interruption import Interruption
from scorer.console.command_lines import CommandLines
from scorer.console.state import Action, ConsoleState
from scorer.models.registry_access import move_key
from scorer.replay import replay
from scorer.replay.selection import DeadLetterSelection
from scorer.rollout.controller import log_topic
from scorer.rollout.controller.log_records import Verb
from scorer.rollout.controller.rollout_state import Rollout
from scorer.rollout.status_topic import notify
from scorer.settings import Settings

UNFIT_EXAMPLES = 3


class ActionRunner:
    """Run actions in a background thread. Each method returns immediately; the console's state receives the result later.

    `moved` is called after each move of the channel.
    """

    def __init__(
        self, settings: Settings, lines: CommandLines, store: Store, state: ConsoleState, moved: Callable[[], None]
    ) -> None:
        self._settings = settings
        self._lines = lines
        self._store = store
        self._state = state
        self._moved = moved
        self._numbers = count(1)
        self._worker = ThreadPoolExecutor(1, "actions")

    def close(self) -> None:
        """Wait until the current action has ended, and cancel the actions that have not begun."""
        self._worker.shutdown(cancel_futures=True)

    def promote(self, actor: str, channel: str, version: str, reason: str, revision: int) -> None:
        """Move the channel to a version, provided that the channel is still at `revision`."""

        def move(request: MoveRequest) -> ChannelMove:
            return channels.promote(self._store, channel, version, request)

        command = self._lines.promote(channel, version, reason, revision)
        self._submit(actor, command, lambda: self._move(move, actor, reason, revision))

    def rollback(self, actor: str, channel: str, to_revision: int | None, reason: str, revision: int) -> None:
        """Move the channel back to `to_revision` (None: the previous one), provided that the channel is still at `revision`."""

        def move(request: MoveRequest) -> ChannelMove:
            return channels.rollback(self._store, channel, request, to_revision=to_revision)

        command = self._lines.rollback(channel, to_revision, reason, revision)
        self._submit(actor, command, lambda: self._move(move, actor, reason, revision))

    def replay(self, actor: str, reasons: Sequence[str], *, dry_run: bool) -> None:
        """Replay the dead letters with these reasons, or all if `reasons` is empty. If `dry_run` is True, only count them."""

        def work() -> str:
            summary = replay.ReplaySummary(dry_run)
            try:
                replay.replay(self._settings, DeadLetterSelection(reasons), summary, Interruption())
            except Fatal as error:
                raise Fatal(f"{error}; {summary.progress()[0]}", error.hint, error.exit_code) from error
            verb = "would be replayed" if dry_run else "replayed"
            counts = f"{summary.replayed.total()} {verb}, {summary.before} replayed before, {summary.unfit} cannot be replayed"
            return "; ".join([counts, *summary.examples[:UNFIT_EXAMPLES]])

        self._submit(actor, self._lines.replay(reasons, dry_run=dry_run), work)

    def ask(self, actor: str, rollout: Rollout, verb: Verb, reason: str) -> None:
        """Send an operator's command `verb`, such as `approve`, about the current step of a rollout to its controller."""

        def work() -> str:
            log_topic.send_command(self._settings, rollout, verb, actor, reason)
            return f"requested to {verb} {rollout.id}; its controller acts at its next poll"

        self._submit(actor, self._lines.ask(verb, reason), work)

    def _move(self, make: Callable[[MoveRequest], ChannelMove], actor: str, reason: str, revision: int) -> str:
        """Call `make` to move the channel, notify the scorers, and return the result as text.

        If the notice fails, the scorers detect the move at their next poll of the registry.
        """
        key = move_key(self._settings)
        move = make(MoveRequest(actor, reason, datetime.now(UTC), expected_revision=revision, key=key))
        result = f"{move.channel} is at revision {move.revision} and names {move.to_version}"
        self._moved()
        try:
            notify(self._settings, move, self._store.repository)
        except Fatal as error:
            return f"{result}; {error}; the scorers detect the move at their next poll of the registry"
        return result

    def _submit(self, actor: str, command: str, work: Callable[[], str]) -> None:
        action = Action(next(self._numbers), time.time(), actor, command)
        self._state.record_action(action)

        def run() -> None:
            try:
                done = replace(action, outcome="done", result=work())
            except (RegistryError, Fatal, Aborted) as error:
                hint = getattr(error, "hint", "")
                done = replace(action, outcome="failed", result=f"{error}. {hint}".rstrip(". "))
            self._state.record_action(done)

        self._worker.submit(run)
