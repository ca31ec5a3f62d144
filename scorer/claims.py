"""Claims partitions at their assignment, and carries out what attempts.py decides about events that may kill the process.

A claim rewrites the committed offset as it is, with a new mark, by itself, without records, and at once. There is one at
each assignment, one before an event is examined that follows no other examined one, and one at the end; none for a batch.
"""

import logging
from collections.abc import Mapping

from confluent_kafka import TopicPartition
from msgspec.structs import replace

from publisher.errors import Aborted
from publisher.session import Session
from scorer.attempts import Suspicion
from scorer.events.batch import Batch
from scorer.intake import Intake, Partition
from scorer.marks import Mark

log = logging.getLogger(__name__)


class Claims:
    """For one scorer. `largest_batch` is the number of events that one batch may hold."""

    def __init__(self, owner: str, intake: Intake, session: Session, largest_batch: int) -> None:
        self._owner = owner
        self._intake = intake
        self._session = session
        self._largest_batch = largest_batch
        self._suspicions: dict[Partition, Suspicion] = {}

    def claim(self) -> None:
        """Put our name on what was assigned, before anything of it is scored. Raises Aborted; then it is to be done again."""
        arrivals = self._intake.arrivals
        if not arrivals:
            return
        marks = self._intake.marks
        self._rewrite({p: replace(marks[p], owner=self._owner, attempts=a.attempts, alone=False) for p, a in arrivals.items()})
        self._intake.arrivals = {}
        for partition, arrival in arrivals.items():
            self._suspicions.pop(partition, None)
            if suspicion := Suspicion.of(arrival, self._largest_batch):
                log.warning("%d attempts at %s[%d]: examining %d events", arrival.attempts, *partition, suspicion.left)
                self._suspicions[partition] = suspicion
                self._intake.isolate(partition)

    @property
    def examining(self) -> bool:
        """Whether events of some partition are scored one at a time."""
        return bool(self._suspicions)

    def suspicion(self, batch: Batch) -> Suspicion | None:
        """What is suspected of a batch; where anything is, it holds one event."""
        return self._suspicions.get(_partition(batch)) if self._suspicions else None

    def announce(self, batch: Batch, suspicion: Suspicion) -> None:
        """Say in the mark that the event is examined now, where it does not say so already. Raises Aborted."""
        if not suspicion.announced:
            partition = _partition(batch)
            self._rewrite({partition: replace(self._intake.marks[partition], attempts=suspicion.attempts, alone=True)})
            suspicion.announced = True

    def announces(self, suspicion: Suspicion) -> bool:
        """Whether the examined event's answer announces the next one: not where another partition's events come in between."""
        return suspicion.left > 1 and len(self._suspicions) == 1

    def answered(self, batch: Batch, suspicion: Suspicion) -> None:
        """The examined event's answer is committed."""
        suspicion.answered(announced=self.announces(suspicion))
        if suspicion.left == 0:
            log.info("%s[%d]: examined, going on as usual", *_partition(batch))
            del self._suspicions[_partition(batch)]
            self._intake.join(_partition(batch))

    def leave(self) -> None:
        """Take our name off everything: whoever comes next must not count this end as a death. Never raises Aborted."""
        mine = {p: replace(mark, owner="") for p, mark in self._intake.marks.items() if mark.owner == self._owner}
        if not mine:
            return
        try:
            self._rewrite(mine)
        except Aborted as error:
            log.info("left without a word in the committed offsets: %s", error)

    def _rewrite(self, marks: Mapping[Partition, Mark]) -> None:
        offsets = [TopicPartition(*p, self._intake.committed[p], mark.encode()) for p, mark in marks.items()]
        self._session.publish([], offsets, self._intake.group)
        self._session.checkpoint()
        self._intake.marks |= marks


def _partition(batch: Batch) -> Partition:
    return batch.topics[0], batch.partitions[0]
