"""`scorer rollout run`: waits until it is to act, acts, and begins anew after whatever ends a tenure."""

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
from publisher.runtime.context import Context
from scorer import topics
from scorer.rollout.controller.decide import ActionKind, NextAction
from scorer.rollout.controller.leader_election import LeaderElection
from scorer.rollout.controller.leadership_term import LeaderTerm
from scorer.rollout.controller.log_records import LogEntry
from scorer.settings import Settings

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
FIRST_SECONDS = 0.1  # of a tenure's first look: what a predecessor has left waits for it
SEAT_SECONDS = 0.1  # a poll that is given the seat goes on until its time is over
AGAIN_SECONDS = 1.0  # before another tenure


class Controller:
    """One of several. `looked(tenure, found)` is called after each look, with None while this one does not act; `wrote` with
    each entry that it writes."""

    def __init__(
        self,
        settings: Settings,
        name: str,
        config: Path,
        flags: Sequence[str],
        looked: Callable[[LeaderTerm | None, NextAction | None], None],
        wrote: Callable[[LogEntry], None],
    ) -> None:
        self._settings, self._name, self._config, self._flags = settings, name, config, flags
        self._looked, self._wrote = looked, wrote
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        """Until `stop`. Raises Fatal where the broker refuses; what is away is waited for."""
        while not self._stopping.is_set():
            try:
                check_access(self._settings, self._name)
                with closing(LeaderElection(self._settings, self._name)) as seat:
                    self._sit(seat)
            except Aborted as error:
                log.warning("this tenure is over: %s", error)
            except Fatal as error:
                if error.exit_code != UNREACHABLE:
                    raise
                log.warning("this tenure is over: %s", error)
            self._looked(None, None)
            self._stopping.wait(AGAIN_SECONDS)

    def _waiting(self) -> None:
        """While a broker is away. Raises Aborted where this process is to end."""
        self._looked(None, None)
        if self._stopping.is_set():
            raise Aborted("it is to end")

    def _tenure(self) -> LeaderTerm:
        given = self._settings, self._name, self._config, self._flags
        return LeaderTerm(*given, context=Context(raise_if_cancelled=self._waiting), wrote=self._wrote)

    def _sit(self, seat: LeaderElection) -> None:
        """Wait for the seat, and act for as long as it is this one's."""
        while not self._stopping.is_set():
            if not seat.poll(SEAT_SECONDS):
                self._looked(None, None)
                continue
            with closing(self._tenure()) as tenure:
                seconds = FIRST_SECONDS
                while seat.poll(0.0) and not self._stopping.is_set():
                    self._looked(tenure, tenure.look(seconds))
                    seconds = LOOK_SECONDS


def check_access(settings: Settings, name: str) -> None:
    """See that the topics are there, and that a controller may do what it will. Raises Fatal: 2 or 3."""
    both = frozenset({READ, WRITE})
    written = dict.fromkeys((settings.rollouts_topic, settings.status_topic), both)
    read = acls.to_read(settings.output.topic, settings.dead_letter.topic, settings.shadow_topic)
    admin = connect(settings.kafka, name)
    found = topics.describe(admin, settings.kafka, written | read | topics.seen(*settings.input.topics))
    topics.check_present(settings, admin, found, written)
    groups.check_right_to_join(admin, settings.kafka, settings.rollout_group)


def run_once(settings: Settings, config: Path, flags: Sequence[str], seconds: float) -> NextAction | None:
    """Do what there is to do now, for so many seconds at most; the last of it. None where no rollout runs. Raises Fatal and
    Aborted."""
    name, until = f"{settings.name}.rollout.step", time.monotonic() + seconds
    with closing(LeaderTerm(settings, name, config, flags, to_end=True)) as tenure:
        while True:
            found = tenure.look(LOOK_SECONDS)
            if found is None or (found.act is ActionKind.WAIT) or time.monotonic() >= until:
                return found
