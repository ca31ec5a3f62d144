"""Write the owner's name to the committed offsets at an assignment, and remove it at shutdown.

From the name, the next owner learns which open transactions it must end. Every commit carries the name, so a separate commit of
the unchanged offset is needed only before the first batch.
"""

import logging
from collections.abc import Collection

from publisher.errors import Aborted
from publisher.kafka.partitions import Partition
from publisher.transactions.protocol import Session
from scorer.consumer.consumer import EventConsumer

log = logging.getLogger(__name__)


class OwnershipMarker:
    """Marks the partitions of the scorer with the name `owner`."""

    def __init__(self, owner: str, intake: EventConsumer, session: Session) -> None:
        self._owner = owner
        self._intake = intake
        self._session = session

    def claim(self, partitions: Collection[Partition]) -> None:
        """Commit the name for these partitions before any of their events is scored. Raises Aborted; the caller retries."""
        self._rewrite(partitions, self._owner)

    def leave(self) -> None:
        """Remove the name from all partitions. No transaction may be open. Never raises Aborted."""
        try:
            self._rewrite([p for p, mark in self._intake.partitions.marks().items() if mark.owner == self._owner], "")
        except Aborted as error:
            log.info("could not clear ownership in the committed offsets at shutdown: %s", error)

    def _rewrite(self, partitions: Collection[Partition], owner: str) -> None:
        if partitions:
            positions = self._intake.partitions
            self._session.publish([], positions.claims(partitions, owner), self._intake.group)
            self._session.checkpoint()
            positions.claimed(partitions, owner)
