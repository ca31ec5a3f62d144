"""Isolation of events that crash the process: journal each batch, and after a death score its events in a sandbox.

Normally every batch is journaled before it is scored (`in_flight_journal.py`). If a journal is found at start, a sandbox
process (`sandbox_process.py`) runs the model until the journaled events are answered (`bisection.py`); then this process loads
the model.

A death with a candidate in hand is the candidate's before it is an event's: what was in hand is answered by the champion alone,
and at the second death the candidate is refused. A new promotion of it begins anew. A shadow, for which nobody waits, has the
examiner ask the candidate again: its death is the second one, and where it lives the first was none of the candidate's.
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
    """For one worker. `alive` is called while an examiner works. `load` loads models into this process; `loading` is what loads
    them now."""

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
        """How many events may be scored at once, of so many."""
        return min(events, self._examination.limit) if self._examiner else events

    def may_ask(self) -> bool:
        """Whether a candidate may look at events. While some are examined it may not: whose the next death is must be clear."""
        return self._examiner is None

    def lethal(self, candidate: str) -> str | None:
        """Why this candidate (see `Resolution.identity`) is not loaded any more; None where it is."""
        deaths = self._in_hand.deaths(candidate)
        return f"{deaths} processes died with it in hand; promote it again to try it again" if deaths >= LETHAL else None

    def take_up(self, batch: Batch, candidate: str = "") -> None:
        """This batch is in hand from now on, and this candidate (see `Resolution.identity`) looks at some of it."""
        if self._examiner is None:
            self._in_hand.note(batch.reached, candidate)
        else:
            self._candidate, self._acquitted = candidate, self._acquitted or bool(candidate)

    def put_down(self) -> None:
        """Nothing is in hand any more, and this process lives."""
        if self._examiner is None:
            self._in_hand.clear()

    def answered(self, batch: Batch) -> None:
        """There are records for this batch."""
        self._examination.answered(batch)

    def died(self, batch: Batch, error: Exception) -> bool:
        """The examiner died over this batch. Whether its one event is guilty; if not, the batch is to be taken again."""
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
        """Once in a while: move the model into this process where nothing is suspected any more. `committed` are the positions
        of this worker's partitions."""
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
            versions.move(self._load)
        else:
            self._in_hand.note(self._examination.suspects)

    def close(self) -> None:
        """Let the examiner go; what is still suspected stays noted."""
        if self._examiner is not None:
            self._examiner.close()
