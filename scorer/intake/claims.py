"""Puts the owner's name on the committed offsets at an assignment, and takes it off at the end.

A name tells the next owner whose open transactions to end. It rides on every commit. A claim, which rewrites the offset as it
is, is only needed before the first.
"""

import logging
from collections.abc import Iterable

from confluent_kafka import TopicPartition
from msgspec.structs import replace

from publisher.errors import Aborted
from publisher.kafka.partitions import Partition
from publisher.session.protocol import Session
from scorer.intake.beginnings import NO_EPOCH
from scorer.intake.consumer import Intake

log = logging.getLogger(__name__)


class Claims:
    """For one scorer, whose name is `owner`."""

    def __init__(self, owner: str, intake: Intake, session: Session) -> None:
        self._owner = owner
        self._intake = intake
        self._session = session

    def claim(self, partitions: Iterable[Partition]) -> None:
        """Put the name on what was assigned, before anything of it is scored. Raises Aborted; then it is to be done again."""
        self._rewrite(partitions, self._owner)

    def leave(self) -> None:
        """Take the name off everything: nothing of ours is open. Never raises Aborted."""
        try:
            self._rewrite([p for p, mark in self._intake.marks.items() if mark.owner == self._owner], "")
        except Aborted as error:
            log.info("left without a word in the committed offsets: %s", error)

    def _rewrite(self, partitions: Iterable[Partition], owner: str) -> None:
        marks = {p: replace(self._intake.marks[p], owner=owner) for p in partitions}
        if not marks:
            return
        at, epochs = self._intake.committed, self._intake.leader_epochs
        offsets = [TopicPartition(*p, at[p], mark.encode(), epochs.get(p, NO_EPOCH)) for p, mark in marks.items()]
        self._session.publish([], offsets, self._intake.group)
        self._session.checkpoint()
        self._intake.marks |= marks
