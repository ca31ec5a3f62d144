"""`publisher run`: fence, read the checkpoints, verify, copy; and the same again after any trouble that may pass.

There is one way to begin, whether a process is new, was killed, or lost one of its clusters for a while: fence whoever may
still write, read the positions to their end, hold them against what both clusters say, go on. Nothing is remembered.
"""

import logging
import threading
import time
import uuid

from confluent_kafka import KafkaException

from publisher.errors import UNREACHABLE, Aborted, Fatal, Retriable
from publisher.relay.clusters import reach
from publisher.relay.fence import registration
from publisher.relay.run_once import Life
from publisher.relay.settings import RelaySettings
from publisher.relay.start_position import OutOfRange, Refused
from publisher.relay.status import RelayState

log = logging.getLogger(__name__)

FIRST_ANSWER_SECONDS = 30.0  # for a process that has never copied anything; afterwards it waits as long as it takes
BACKOFF_SECONDS = (0.1, 0.2, 0.5, 1.0)


class Relay:
    """Copies until `stopping` is set. `state` is what metrics, health and people see of it."""

    def __init__(self, settings: RelaySettings, stopping: threading.Event) -> None:
        self.state = RelayState(settings.lanes, settings.name)
        self._settings = settings
        self._stopping = stopping
        self._instance = uuid.uuid4().hex

    def run(self) -> None:
        """Raises Fatal: 3 where the relay must not go on, 4 where a cluster does not answer at the very start."""
        began = time.monotonic()
        out_of_range: OutOfRange | None = None
        trouble = 0
        while not self._stopping.is_set():
            copied_until = self.state.transactions()
            try:
                self._once(out_of_range)
            except OutOfRange as error:
                out_of_range = error
                self.state.note("out of range", error)
            except (Aborted, Retriable, Fatal, KafkaException) as error:
                self.state.note(type(error).__name__.lower(), error)
                if isinstance(error, Fatal) and error.exit_code != UNREACHABLE:
                    raise
                if not self.state.copying_since and time.monotonic() - began > FIRST_ANSWER_SECONDS:
                    hint = error.hint if isinstance(error, Fatal) else "check bootstrap_servers of both clusters"
                    raise Fatal(str(error), hint, UNREACHABLE) from error
            trouble = 0 if self.state.transactions() > copied_until else trouble + 1
            self._stopping.wait(BACKOFF_SECONDS[min(trouble, len(BACKOFF_SECONDS) - 1)])

    def _once(self, out_of_range: OutOfRange | None) -> None:
        """One life: from taking over to the end, or to the first trouble."""
        if not self.state.copying_since:
            reach(self._settings)
        life = Life(self._settings, self.state, self._stopping)
        try:
            life.survey()
            self._refuse_if_replaced(life)
            told = registration(self._settings, self._instance, "publisher run")
            life.take_over(told, lambda: self._refuse_if_replaced(life))
            life.begin(told)
            if out_of_range is not None:
                raise Refused(
                    f"{out_of_range.topic}[{out_of_range.partition}] does not go on where its copy ended: {out_of_range}",
                    "look at that log, then go on deliberately: publisher checkpoint set",
                )
            self.state.registered = True
            self.state.began()
            life.supervise()
        finally:
            self.state.copying = False
            life.close()

    def _refuse_if_replaced(self, life: Life) -> None:
        """Fenced by a process that began later: then that one is the relay. Only who starts anew takes over."""
        last = life.checkpoints.registrations.get(self._settings.name)
        if self.state.registered and last is not None and last.instance != self._instance:
            raise Refused(
                f"another process took over relay {self._settings.name!r}: {last.what}, pid {last.pid} on {last.host}",
                "run one process a name; to copy more, give each its own name and topics",
            )
