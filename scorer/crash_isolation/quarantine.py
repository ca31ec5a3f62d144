"""Isolate events that crash the process. Each batch is journaled; if the process dies, a sandbox process scores its events.

The sandbox process runs the model until all events of the batch are answered. Then the worker process loads the model itself.
"""

# If the journal (`in_flight_journal.py`) has events when a worker starts, these are the suspects (`bisection.py`). If a
# candidate was scoring, it is first assumed to be the cause: its number of deaths is increased, and the champion alone answers
# the suspects. Only if processes still die, an event is assumed to be the cause. A candidate with two deaths is refused until a
# new promotion resets the number. In a shadow, the candidate scores the suspects again in the sandbox, because no consumer
# waits for the records. If the sandbox dies, this is the second death. Otherwise the number is reset.

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
from scorer.tables.lookup import TableLookup

log = logging.getLogger(__name__)

CommittedOffsets = Callable[[Iterable[Partition]], dict[Partition, int]]
"""Returns the committed offsets of partitions that other group members own. Unknown offsets are omitted."""

LETHAL = 2  # a candidate is refused after this many deaths while it scored events
OFFSET_QUERY_SECONDS = 5.0  # between queries of the offsets of other members' partitions


class Quarantine:
    """Isolates one worker from the events that were in flight when its predecessor died (the suspects).

    Args:
        settings: the settings of the worker.
        journal: the in-flight journal.
        load: the loader of models into this process.
        context: the clock, and the check that is called repeatedly while the worker waits for the sandbox process.
        tables: the tables of joined fields; None without tables.

    Attributes:
        loading: the loader to use: into the sandbox process while there are suspects, otherwise into this process.
    """

    def __init__(
        self,
        settings: Settings,
        journal: InFlightJournal,
        load: LoadPackage,
        context: Context,
        tables: TableLookup | None = None,
    ) -> None:
        self._journal = journal
        self._load = self.loading = load
        self._clock = context.clock
        self._query_at = 0.0
        self._candidate = ""  # the candidate that scores in the sandbox
        self._candidate_scored = False
        self._sandbox: SandboxProcess | None = None
        topics = settings.input.topics
        suspects = {(topic, number): end for (topic, number), end in journal.read().items() if topic in topics}
        self._bisection = Bisection(suspects, settings.batching.max_events, self._clock.monotonic())
        if candidate := journal.candidate():
            journal.record_death(candidate)
            journal.write(suspects)
            log.warning(
                "a process died while the candidate %s scored events; the death is attributed to this candidate", candidate
            )
        if suspects:
            names = in_ranges(suspects)
            log.warning("a process died while it processed events of %s; a sandbox process scores these events", names)
            self._sandbox = SandboxProcess(settings, context, tables)
            self.loading = self._sandbox.load

    def limit_events(self, events: int) -> int:
        """Return how many of `events` events a batch may contain: fewer during the search for a crashing event."""
        return min(events, self._bisection.limit) if self._sandbox else events

    def allows_candidate(self) -> bool:
        """Return whether a candidate may score events."""
        # While the sandbox process runs it must not, because a death must have only one possible cause.
        return self._sandbox is None

    def refusal_reason(self, candidate: str) -> str | None:
        """Return why this candidate is refused after crashes; None if the candidate may be loaded.

        `candidate` is the `Resolution.identity` of the version.
        """
        deaths = self._journal.deaths(candidate)
        return f"{deaths} processes died while it scored events; promote it again to retry it" if deaths >= LETHAL else None

    def begin_batch(self, batch: Batch, candidate: str = "") -> None:
        """Record that this batch is in flight.

        `candidate` is the `Resolution.identity` of the candidate that scores some of the events; "" if no candidate does.
        """
        # While a sandbox process runs, the batch is recorded only in this object.
        if self._sandbox is None:
            self._journal.write(batch.reached, candidate)
        else:
            self._candidate = candidate
            self._candidate_scored = self._candidate_scored or bool(candidate)

    def end_batch(self) -> None:
        """Record in the in-flight journal that the batch has ended, unless suspects remain."""
        # While a sandbox process runs, the journal keeps the suspects.
        if self._sandbox is None:
            self._journal.clear()

    def record_answer(self, batch: Batch) -> None:
        """Record that this batch was scored without a death."""
        self._bisection.record_scored(batch)

    def record_death(self, batch: Batch, error: Exception) -> bool:
        """Record that the sandbox process died while it scored this batch.

        Returns True if the batch has a single event, and this event is the cause of the death. The caller must then dead-letter
        the event. Otherwise the caller must fetch the batch again.
        """
        if candidate := self._candidate:
            self._candidate = ""
            self._candidate_scored = False
            self._journal.record_death(candidate)
            log.warning(
                "the sandbox process with %d events %s; the death is attributed to the candidate: %s",
                len(batch),
                error,
                candidate,
            )
            return False
        is_failing = self._bisection.died(batch, self._clock.monotonic())
        log.warning(
            "the sandbox process with %d events %s%s",
            len(batch),
            error,
            "; this event is marked as failing" if is_failing else "",
        )
        return is_failing

    def poll(self, committed: dict[Partition, int], elsewhere: CommittedOffsets, versions: VersionManager) -> None:
        """If the bisection is over, end the sandbox process and load the versions into this process.

        The worker calls this method regularly.

        Args:
            committed: the committed offsets of this worker's partitions.
            elsewhere: returns the committed offsets of partitions that other workers own.
            versions: the manager of the served versions, which loads them into this process.
        """
        if self._sandbox is None:
            return
        now = self._clock.monotonic()
        if now >= self._query_at:
            self._query_at = now + OFFSET_QUERY_SECONDS
            committed |= elsewhere(self._bisection.suspects.keys() - committed.keys())
        if self._bisection.is_over(committed, now):
            log.info("all suspected events are scored or dead-lettered; loading the model into this process")
            self._sandbox.close()
            self._sandbox = None
            self._journal.clear()
            if self._candidate_scored:
                self._journal.forget_deaths()
            versions.reload(self._load)
        else:
            self._journal.write(self._bisection.suspects)

    def close(self) -> None:
        """End the sandbox process. Remaining suspects stay in the journal for the next process."""
        if self._sandbox is not None:
            self._sandbox.close()
