"""Write the owner's name to the committed offsets at an assignment, and remove it at the end.

The name tells the next owner whose open transactions to end. Every commit carries it. A separate write of the unchanged offset
is needed only
before the first commit.
"""

import logging
from collections.abc import Collection

from publisher.errors import Aborted
from publisher.kafka.partitions import Partition
from publisher.transactions.protocol import Session
from scorer.consumer.consumer import EventConsumer

log = logging.getLogger(__name__)


class OwnershipMarker:
    """Marks partitions for one scorer, whose name is `owner`."""

    def __init__(self, owner: str, intake: EventConsumer, session: Session) -> None:
        self._owner = owner
        self._intake = intake
        self._session = session

    def claim(self, partitions: Collection[Partition]) -> None:
        """Write the name to these partitions before any of their events is scored. Raises Aborted; then repeat it."""
        self._rewrite(partitions, self._owner)

    def leave(self) -> None:
        """Remove the name from all partitions; no transaction of ours is open. Never raises Aborted."""
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
