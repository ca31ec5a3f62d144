"""The loop of `scorer rollout run`: wait until this controller is elected, run its term, and start again after the term."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from publisher.errors import UNREACHABLE, Aborted, Fatal
from publisher.kafka import acls, groups
from publisher.kafka.acls import READ, WRITE
from publisher.kafka.connection import connect
from publisher.kafka.isolated_groups import IsolatedGroups
from publisher.runtime.context import Context
from scorer import topics
from scorer.rollout.controller.leader_election import LeaderElection
from scorer.rollout.controller.leadership_term import LeaderTerm
from scorer.rollout.controller.log_records import LogEntry
from scorer.rollout.controller.next_action import ActionKind, NextAction
from scorer.settings import Settings

log = logging.getLogger(__name__)

CYCLE_SECONDS = 1.0
FIRST_SECONDS = 0.1  # duration of a term's first cycle, which completes an interrupted move of the previous leader
ELECTION_POLL_SECONDS = 0.1  # short, because a poll in which this controller is elected lasts its whole time
RETRY_SECONDS = 1.0  # between the end of a term and the next election


class Controller:
    """A controller of rollouts. If several controllers run, one of them is the leader and acts, and the others wait.

    Args:
        settings: The settings.
        name: The name of this controller.
        config: The configuration file, for the comparison process.
        flags: The settings flags, for the comparison process.
        on_cycle: A function to call after each cycle of the loop, with the leader term and the executed action. Both are None
            while this controller is not the leader.
        on_write: A function to call with each log entry that this controller writes.
    """

    def __init__(
        self,
        settings: Settings,
        name: str,
        config: Path,
        flags: Sequence[str],
        on_cycle: Callable[[LeaderTerm | None, NextAction | None], None],
        on_write: Callable[[LogEntry], None],
    ) -> None:
        self._settings = settings
        self._name = name
        self._config = config
        self._flags = flags
        self._on_cycle = on_cycle
        self._on_write = on_write
        self._stopping = threading.Event()

    def stop(self) -> None:
        """End `run` after the current cycle."""
        self._stopping.set()

    def run(self) -> None:
        """Run until `stop` is called. While a dependency is unavailable, wait.

        Raises:
            Fatal: If the broker denies access.
        """
        while not self._stopping.is_set():
            try:
                check_access(self._settings, self._name)
                with closing(LeaderElection(self._settings, self._name)) as election:
                    self._lead(election)
            except Aborted as error:
                log.warning("this controller is not the leader now: %s", error)
            except Fatal as error:
                if error.exit_code != UNREACHABLE:
                    raise
                log.warning("this controller is not the leader now: %s", error)
            self._on_cycle(None, None)
            self._stopping.wait(RETRY_SECONDS)

    def _waiting(self) -> None:
        """Report that this controller does not lead. Raises Aborted if this process is stopping."""
        # It is called repeatedly while the broker is unavailable at the start of a term.
        self._on_cycle(None, None)
        if self._stopping.is_set():
            raise Aborted("the controller is stopping")

    def _start_term(self) -> LeaderTerm:
        arguments = self._settings, self._name, self._config, self._flags
        return LeaderTerm(*arguments, context=Context(raise_if_cancelled=self._waiting), on_write=self._on_write)

    def _lead(self, election: LeaderElection) -> None:
        """Wait until this controller is elected, and run cycles while it is the leader."""
        while not self._stopping.is_set():
            if not election.poll(ELECTION_POLL_SECONDS):
                self._on_cycle(None, None)
                continue
            with closing(self._start_term()) as term:
                seconds = FIRST_SECONDS
                while election.poll(0.0) and not self._stopping.is_set():
                    self._on_cycle(term, term.run_cycle(seconds))
                    seconds = CYCLE_SECONDS


def check_access(settings: Settings, name: str) -> None:
    """Check that the topics that rollouts need exist, and that this controller has the access rights that it needs.

    Raises:
        Fatal: With code 2 if a topic is missing, 3 if a right is missing.
    """
    both = frozenset({READ, WRITE})
    written = dict.fromkeys((settings.rollouts_topic, settings.status_topic), both)
    read = acls.to_read(settings.output.topic, settings.dead_letter.topic, settings.shadow_topic)
    admin = connect(settings.kafka, name)
    described = topics.describe(admin, settings.kafka, written | read | acls.to_describe(*settings.input.topics))
    topics.check_present(settings, admin, described, written)
    groups.check_right_to_join(IsolatedGroups(settings.kafka, name), settings.kafka, settings.rollout_group)


def run_once(settings: Settings, config: Path, flags: Sequence[str], seconds: float) -> NextAction | None:
    """Run cycles of a leader term until the rollout waits or `seconds` have passed. Return the action of the last cycle.

    The result is None if no rollout runs.

    Raises:
        Fatal: In the same cases as `LeaderTerm`.
        Aborted: In the same cases as `LeaderTerm`.
    """
    name = f"{settings.name}.rollout.step"
    deadline = time.monotonic() + seconds
    with closing(LeaderTerm(settings, name, config, flags, to_end=True)) as term:
        while True:
            action = term.run_cycle(CYCLE_SECONDS)
            if action is None or (action.act is ActionKind.WAIT) or time.monotonic() >= deadline:
                return action
