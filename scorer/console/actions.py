"""What the console does where it may: move the channel, replay dead letters, ask a rollout's controller.

One after the other, in a thread of its own. Each is the same call that the command makes, and is remembered with that command
and with how it ended.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import count

from model_registry.channels import channel as channels
from model_registry.channels.history import ChannelMove
from model_registry.errors import RegistryError
from model_registry.stores.base import Store
from publisher.errors import Aborted, Fatal
from publisher.runtime.interruption import Interruption
from scorer.console.command_lines import CommandLines
from scorer.console.state import Action, ConsoleState
from scorer.models.registry_access import move_key
from scorer.replay import replay
from scorer.replay.dead_letter import Selection
from scorer.rollout.controller import log_topic
from scorer.rollout.controller.event_log import Rollout
from scorer.rollout.controller.log_records import Verb
from scorer.rollout.status_topic import notify
from scorer.settings import Settings

UNFIT_SHOWN = 3


class ActionRunner:
    """Each method returns at once; the state tells the outcome. `moved` is called after a move of the channel."""

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
        """Finish what was begun, and begin nothing more."""
        self._worker.shutdown(cancel_futures=True)

    def promote(self, actor: str, channel: str, version: str, reason: str, revision: int) -> None:
        """Point the channel, which must be at `revision`, at a version."""

        make = partial(channels.promote, self._store, channel, version, expected=channels.Expected(revision=revision))
        self._do(actor, self._lines.promote(channel, version, reason, revision), lambda: self._move(make, actor, reason))

    def rollback(self, actor: str, channel: str, to_revision: int | None, reason: str, revision: int) -> None:
        """Point the channel, which must be at `revision`, at what it named at another revision, or before."""

        expected = channels.Expected(revision=revision)
        make = partial(channels.rollback, self._store, channel, to_revision=to_revision, expected=expected)
        self._do(actor, self._lines.rollback(channel, to_revision, reason, revision), lambda: self._move(make, actor, reason))

    def replay(self, actor: str, reasons: Sequence[str], *, dry_run: bool) -> None:
        """Put back the dead letters of these reasons, all where none is named; or say what would be."""

        def work() -> str:
            summary = replay.Summary(dry_run)
            try:
                replay.replay(self._settings, Selection(reasons), summary, Interruption())
            except Fatal as error:
                raise Fatal(f"{error}; {summary.progress()[0]}", error.hint, error.exit_code) from error
            verb = "would be replayed" if dry_run else "replayed"
            said = f"{summary.replayed.total()} {verb}, {summary.before} replayed before, {summary.unfit} unfit"
            return "; ".join([said, *summary.examples[:UNFIT_SHOWN]])

        self._do(actor, self._lines.replay(reasons, dry_run=dry_run), work)

    def ask(self, actor: str, rollout: Rollout, verb: Verb, reason: str) -> None:
        """Ask the controller of a rollout, of the step that it is at."""

        def work() -> str:
            log_topic.ask(self._settings, rollout, verb, actor, reason)
            return f"{rollout.id} was asked to {verb}; its controller does so when it looks next"

        self._do(actor, self._lines.ask(verb, reason), work)

    def _move(self, make: Callable[..., ChannelMove], actor: str, reason: str) -> str:
        """Make a move, and tell the scorers. One that cannot be told is seen at their next poll."""
        move = make(actor=actor, reason=reason, now=datetime.now(UTC), key=move_key(self._settings))
        said = f"{move.channel} is at revision {move.revision} and names {move.to_version}"
        self._moved()
        try:
            notify(self._settings, move, self._store.repository)
        except Fatal as error:
            return f"{said}; {error}; the scorers see it at their next poll"
        return said

    def _do(self, actor: str, command: str, work: Callable[[], str]) -> None:
        deed = Action(next(self._numbers), time.time(), actor, command)
        self._state.did(deed)

        def run() -> None:
            try:
                done = replace(deed, outcome="done", said=work())
            except (RegistryError, Fatal, Aborted) as error:
                hint = getattr(error, "hint", "")
                done = replace(deed, outcome="failed", said=f"{error}. {hint}".rstrip(". "))
            self._state.did(done)

        self._worker.submit(run)
