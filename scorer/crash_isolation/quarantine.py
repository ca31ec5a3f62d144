"""Isolate events that crash the process: journal each batch, and after a death score its events in a sandbox.

Normally every batch is journaled before it is scored (`in_flight_journal.py`). If the journal has events at the start, a
sandbox process (`sandbox_process.py`) runs the model until these events are answered (`bisection.py`). Then this process loads
the model.

A death with a candidate in flight is attributed to the candidate before it is attributed to an event: the champion alone
answers the events, and after the second death the candidate is refused. A new promotion resets the count. In a shadow, for
which no consumer waits, the candidate scores the events again in the sandbox: if the sandbox dies, that is the second death;
otherwise the candidate was not the cause.
"""

import logging
from collections.abc import Callable, Iterable

from publisher.kafka.partitions import Partition, in_ranges
from publisher.runtime.context import Context
from scorer.crash_isolation.bisection import Bisection
from scorer.crash_isolation.in_flight_journal import InFlightJournal
from scorer.crash_isolation.sandbox_process import SandboxProcess
from scorer.decoding.batch import Batch
from scorer.models.servable import LoadPackage
from scorer.models.version_manager import VersionManager
from scorer.settings import Settings

log = logging.getLogger(__name__)

Elsewhere = Callable[[Iterable[Partition]], dict[Partition, int]]
"""Returns the committed offsets of partitions of other members, as far as they are known."""

LETHAL = 2  # deaths with a candidate in flight
ELSEWHERE_SECONDS = 5.0  # between queries of the offsets of other members' partitions


class Quarantine:
    """The isolation of one worker.

    Args:
        settings: the settings of the worker.
        journal: the in-flight journal.
        load: loads models into this process.
        context: shows liveness while the sandbox works; its clock measures durations.

    Attributes:
        loading: the current loader: `load`, or that of the sandbox.
    """

    def __init__(self, settings: Settings, journal: InFlightJournal, load: LoadPackage, context: Context) -> None:
        self._journal = journal
        self._load = self.loading = load
        self._clock = context.clock
        self._query_at = 0.0
        self._candidate = ""  # the candidate that scores in the sandbox
        self._acquitted = False
        self._sandbox: SandboxProcess | None = None
        topics = settings.input.topics
        suspects = {(topic, number): end for (topic, number), end in journal.read().items() if topic in topics}
        self._bisection = Bisection(suspects, settings.batching.max_events, self._clock.monotonic())
        if candidate := journal.candidate():
            journal.blame(candidate)
            journal.note(suspects)
            log.warning("a process died with a candidate in flight; the death is attributed to it: %s", candidate)
        if suspects:
            names = in_ranges(suspects)
            log.warning("a process died with events of these partitions in flight; a sandbox scores them: %s", names)
            self._sandbox = SandboxProcess(settings, context)
            self.loading = self._sandbox.load

    def limit_events(self, events: int) -> int:
        """Return how many of these events may be scored at once."""
        return min(events, self._bisection.limit) if self._sandbox else events

    def allows_candidate(self) -> bool:
        """Return whether a candidate may score events: not during a bisection, so that the next death has one cause."""
        return self._sandbox is None

    def lethal(self, candidate: str) -> str | None:
        """Return the reason for which this candidate (see `Resolution.identity`) is refused; None if it may be loaded."""
        deaths = self._journal.deaths(candidate)
        return f"{deaths} processes died with it in flight; promote it again to retry it" if deaths >= LETHAL else None

    def begin_batch(self, batch: Batch, candidate: str = "") -> None:
        """Journal this batch as in flight, with the candidate (see `Resolution.identity`) that scores some of its events."""
        if self._sandbox is None:
            self._journal.note(batch.reached, candidate)
        else:
            self._candidate = candidate
            self._acquitted = self._acquitted or bool(candidate)

    def end_batch(self) -> None:
        """Clear the journal: no event is in flight."""
        if self._sandbox is None:
            self._journal.clear()

    def record_answer(self, batch: Batch) -> None:
        """Record that this batch is scored."""
        self._bisection.answered(batch)

    def record_death(self, batch: Batch, error: Exception) -> bool:
        """Record that the sandbox died over this batch; return whether its only event is marked as failing.

        If the event is not marked, the batch must be fetched again.
        """
        if candidate := self._candidate:
            self._candidate = ""
            self._acquitted = False
            self._journal.blame(candidate)
            log.warning(
                "the sandbox with %d events %s; the death is attributed to the candidate: %s", len(batch), error, candidate
            )
            return False
        is_failing = self._bisection.died(batch, self._clock.monotonic())
        log.warning("the sandbox with %d events %s%s", len(batch), error, ": the event is failing" if is_failing else "")
        return is_failing

    def look(self, committed: dict[Partition, int], elsewhere: Elsewhere, versions: VersionManager) -> None:
        """Load the model into this process if all suspects are answered. The worker calls it periodically.

        Args:
            committed: the committed offsets of this worker's partitions.
            elsewhere: returns the committed offsets of other partitions.
            versions: the versions of the model, which are loaded again.
        """
        if self._sandbox is None:
            return
        now = self._clock.monotonic()
        if now >= self._query_at:
            self._query_at = now + ELSEWHERE_SECONDS
            committed |= elsewhere(self._bisection.suspects.keys() - committed.keys())
        if self._bisection.over(committed, now):
            log.info("all suspects are answered; loading the model into this process")
            self._sandbox.close()
            self._sandbox = None
            self._journal.clear()
            if self._acquitted:
                self._journal.acquit()
            versions.reload(self._load)
        else:
            self._journal.note(self._bisection.suspects)

    def close(self) -> None:
        """Release the sandbox; remaining suspects stay in the journal."""
        if self._sandbox is not None:
            self._sandbox.close()
