"""Puts the owner's name on the committed offsets at an assignment, and takes it off at the end.

A name tells the next owner whose open transactions to end. It rides on every commit. A claim, which rewrites the offset as it
is, is only needed before the first.
"""

import logging
from collections.abc import Collection

from publisher.errors import Aborted
from publisher.kafka.partitions import Partition
from publisher.transactions.protocol import Session
from scorer.consumer.consumer import EventConsumer

log = logging.getLogger(__name__)


class OwnershipMarker:
    """For one scorer, whose name is `owner`."""

    def __init__(self, owner: str, intake: EventConsumer, session: Session) -> None:
        self._owner = owner
        self._intake = intake
        self._session = session

    def claim(self, partitions: Collection[Partition]) -> None:
        """Put the name on these before anything of them is scored. Raises Aborted; then it has to be done again."""
        self._rewrite(partitions, self._owner)

    def leave(self) -> None:
        """Take the name off everything: nothing of ours is open. Never raises Aborted."""
        try:
            self._rewrite([p for p, mark in self._intake.partitions.marks().items() if mark.owner == self._owner], "")
        except Aborted as error:
            log.info("left without a word in the committed offsets: %s", error)

    def _rewrite(self, partitions: Collection[Partition], owner: str) -> None:
        if partitions:
            known = self._intake.partitions
            self._session.publish([], known.claims(partitions, owner), self._intake.group)
            self._session.checkpoint()
            known.claimed(partitions, owner)
