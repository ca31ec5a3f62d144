"""Repeat runs of the relay until it is stopped, or until an operator must decide how to continue.

Every run has the same steps: fence every process that may still write, read the checkpoints to their end, compare them with
both clusters, copy. No position is carried from run to run.
"""

import logging
import threading
import time
import uuid

from confluent_kafka import KafkaException

from publisher.errors import UNREACHABLE, Aborted, Fatal, Retriable
from publisher.relay.clusters import check_reachable
from publisher.relay.fence import registration
from publisher.relay.relay_state import RelayState
from publisher.relay.run_once import RelayRun
from publisher.relay.settings import RelaySettings
from publisher.relay.start_position import CopyRefused, OutOfRange

log = logging.getLogger(__name__)

FIRST_ANSWER_SECONDS = 30.0  # how long a new process waits for both clusters; once it has copied, it waits without a limit
BACKOFF_SECONDS = (0.1, 0.2, 0.5, 1.0)


class Relay:
    """Repeats runs of one relay until `stopping` is set. `state` is for metrics and health checks."""

    def __init__(self, settings: RelaySettings, stopping: threading.Event) -> None:
        self.state = RelayState(settings.lanes, settings.name)
        self._settings = settings
        self._stopping = stopping
        self._instance = uuid.uuid4().hex

    def run(self) -> None:
        """Copy until `stopping` is set.

        Raises:
            Fatal: with exit code 3 if the relay must not continue, 4 if a cluster does not answer at the first start.
        """
        began = time.monotonic()
        out_of_range: OutOfRange | None = None
        failures_in_a_row = 0
        while not self._stopping.is_set():
            transactions = self.state.transactions()
            try:
                self._run_once(out_of_range)
            except OutOfRange as error:
                out_of_range = error
                self.state.record_failure("out of range", error)
            except (Aborted, Retriable, Fatal, KafkaException) as error:
                self.state.record_failure(type(error).__name__.lower(), error)
                if isinstance(error, Fatal) and error.exit_code != UNREACHABLE:
                    raise
                if not self.state.copying_since and time.monotonic() - began > FIRST_ANSWER_SECONDS:
                    hint = error.hint if isinstance(error, Fatal) else "check bootstrap_servers of both clusters"
                    raise Fatal(str(error), hint, UNREACHABLE) from error
            failures_in_a_row = 0 if self.state.transactions() > transactions else failures_in_a_row + 1
            self._stopping.wait(BACKOFF_SECONDS[min(failures_in_a_row, len(BACKOFF_SECONDS) - 1)])

    def _run_once(self, out_of_range: OutOfRange | None) -> None:
        """Copy until `stopping` is set, or until the first failure.

        Args:
            out_of_range: the OutOfRange error that ended an earlier run; None if there was none. The checks at the start of
                this run raise an error if they find the cause. Otherwise this method raises CopyRefused.
        """
        if not self.state.copying_since:
            check_reachable(self._settings)
        run = RelayRun(self._settings, self.state, self._stopping)
        try:
            run.resolve_topics()
            self._refuse_if_replaced(run)
            registered = registration(self._settings, self._instance, "publisher run")
            run.take_over(registered, lambda: self._refuse_if_replaced(run))
            run.begin(registered)
            if out_of_range is not None:
                raise CopyRefused(
                    f"{out_of_range.topic}[{out_of_range.partition}] cannot be read at the next offset to copy: {out_of_range}",
                    "inspect this partition of the source, then run `publisher checkpoint set` to set the position of its copy",
                )
            self.state.registered = True
            self.state.record_start()
            run.supervise()
        finally:
            self.state.copying = False
            run.close()

    def _refuse_if_replaced(self, run: RelayRun) -> None:
        """Raise CopyRefused if another process has registered since this process did."""
        # Without this check, the two processes would take over the relay from each other again and again.
        last = run.checkpoints.registrations.get(self._settings.name)
        if self.state.registered and last is not None and last.instance != self._instance:
            raise CopyRefused(
                f"another process took over relay {self._settings.name!r}: {last.command} with pid {last.pid} on {last.host}",
                "run one process per name; to copy more topics, give each process its own name and topics",
            )
