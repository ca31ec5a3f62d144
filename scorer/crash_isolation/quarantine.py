"""Isolation of events that crash the process: journal each batch, and after a death score its events in a sandbox.

Normally every batch is journaled before it is scored (`in_flight_journal.py`). If a journal is found at start, a sandbox
process (`sandbox_process.py`) runs the model until the journaled events are answered (`bisection.py`); then this process loads
the model.

A death with a candidate in flight counts against the candidate before it counts against an event: the champion alone answers
the events, and at the second death the candidate is refused. A new promotion starts fresh. A shadow, which no consumer waits
for, lets the sandbox ask the candidate again: its death is the second one, and without a death the candidate was not the
cause.
"""

import logging
import time
from collections.abc import Callable, Iterable

from publisher.kafka.partitions import Partition, in_ranges
from scorer.crash_isolation.bisection import Bisection
from scorer.crash_isolation.in_flight_journal import InFlightJournal
from scorer.crash_isolation.sandbox_process import SandboxProcess
from scorer.decoding.batch import Batch
from scorer.models.servable import LoadPackage
from scorer.models.version_manager import VersionManager
from scorer.settings import Settings

log = logging.getLogger(__name__)

Elsewhere = Callable[[Iterable[Partition]], dict[Partition, int]]
"""What the group has committed of partitions that others hold, where a broker tells."""

LETHAL = 2  # deaths with a candidate in hand
ELSEWHERE_SECONDS = 5.0  # between questions about partitions that another scorer holds


class Quarantine:
    """The isolation of one worker.

    `alive` is called while the sandbox works. `load` loads models into this process; `loading` is the current loader.
    """

    def __init__(self, settings: Settings, in_hand: InFlightJournal, load: LoadPackage, alive: Callable[[], None]) -> None:
        self._in_hand = in_hand
        self._load = self.loading = load
        self._ask_at = 0.0
        self._candidate = ""  # the one that the examiner looks at
        self._acquitted = False
        self._examiner: SandboxProcess | None = None
        suspects = {place: end for place, end in in_hand.read().items() if place[0] in settings.input.topics}
        self._examination = Bisection(suspects, settings.batching.max_events, time.monotonic())
        if candidate := in_hand.candidate():
            in_hand.blame(candidate)
            in_hand.note(suspects)
            log.warning("a process died with a candidate in hand, which is blamed for it: %s", candidate)
        if suspects:
            names = in_ranges(suspects)
            log.warning("a process died with events of these partitions in flight, and they are examined apart: %s", names)
            self._examiner = SandboxProcess(settings, alive)
            self.loading = self._examiner.load

    def most(self, events: int) -> int:
        """Return how many of these events may be scored at once."""
        return min(events, self._examination.limit) if self._examiner else events

    def may_ask(self) -> bool:
        """Return whether a candidate may score events: not during a bisection, so that the next death has one cause."""
        return self._examiner is None

    def lethal(self, candidate: str) -> str | None:
        """Return why this candidate (see `Resolution.identity`) is no longer loaded; None if it is."""
        deaths = self._in_hand.deaths(candidate)
        return f"{deaths} processes died with it in hand; promote it again to try it again" if deaths >= LETHAL else None

    def take_up(self, batch: Batch, candidate: str = "") -> None:
        """Journal this batch as in flight, with the candidate (see `Resolution.identity`) that scores some of it."""
        if self._examiner is None:
            self._in_hand.note(batch.reached, candidate)
        else:
            self._candidate, self._acquitted = candidate, self._acquitted or bool(candidate)

    def put_down(self) -> None:
        """Clear the journal: no event is in flight."""
        if self._examiner is None:
            self._in_hand.clear()

    def answered(self, batch: Batch) -> None:
        """Record that this batch has its records."""
        self._examination.answered(batch)

    def died(self, batch: Batch, error: Exception) -> bool:
        """Record that the sandbox died over this batch; return whether its only event is marked as failing.

        If not, the batch must be fetched again.
        """
        if candidate := self._candidate:
            self._candidate, self._acquitted = "", False
            self._in_hand.blame(candidate)
            log.warning(
                "the examiner of %d events %s with a candidate in hand, which is blamed: %s", len(batch), error, candidate
            )
            return False
        guilty = self._examination.died(batch, time.monotonic())
        log.warning("the examiner of %d events %s%s", len(batch), error, ": the event is guilty" if guilty else "")
        return guilty

    def look(self, committed: dict[Partition, int], elsewhere: Elsewhere, versions: VersionManager) -> None:
        """Move the model into this process when no event is suspected any longer; called periodically.

        `committed` are the positions of this worker's partitions.
        """
        if self._examiner is None:
            return
        now = time.monotonic()
        if now >= self._ask_at:
            self._ask_at = now + ELSEWHERE_SECONDS
            committed |= elsewhere(self._examination.suspects.keys() - committed.keys())
        if self._examination.over(committed, now):
            log.info("the events that were suspected are answered; loading the model into this process")
            self._examiner.close()
            self._examiner = None
            self._in_hand.clear()
            if self._acquitted:
                self._in_hand.acquit()
            versions.reload(self._load)
        else:
            self._in_hand.note(self._examination.suspects)

    def close(self) -> None:
        """Release the sandbox; remaining suspects stay in the journal."""
        if self._examiner is not None:
            self._examiner.close()
