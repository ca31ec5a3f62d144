"""Write the owner's name to the metadata of committed offsets at an assignment, and remove the name at shutdown.

The next owner of a partition reads the name to find the open transactions that it must end.
"""

# Every commit of a batch contains the name, so a separate commit of the unchanged offset is needed only before the first batch.

import logging
from collections.abc import Collection

from publisher.errors import Aborted
from publisher.kafka.partitions import Partition
from publisher.transactions.session import Session
from scorer.consumer.consumer import EventConsumer

log = logging.getLogger(__name__)


class OwnershipMarker:
    """Commits the name of this scorer, `owner`, in the offset metadata of the partitions that are assigned to the scorer."""

    def __init__(self, owner: str, intake: EventConsumer, session: Session) -> None:
        self._owner = owner
        self._intake = intake
        self._session = session

    def claim(self, partitions: Collection[Partition]) -> None:
        """Commit the owner's name for new partitions before their events are fetched.

        If the call raises Aborted, repeat it after the recovery of the publishing session.
        """
        self._rewrite(partitions, self._owner)

    def clear_owner(self) -> None:
        """Remove the owner's name from the committed offsets of all partitions. A failure is logged and not raised.

        The caller must first wait until all published batches are committed, so that no transaction is open.
        """
        try:
            self._rewrite(
                [p for p, mark in self._intake.partitions.metadata_by_partition().items() if mark.owner == self._owner], ""
            )
        except Aborted as error:
            log.info("could not clear ownership in the committed offsets at shutdown: %s", error)

    def _rewrite(self, partitions: Collection[Partition], owner: str) -> None:
        if partitions:
            positions = self._intake.partitions
            self._session.publish([], positions.ownership_positions(partitions, owner), self._intake.group)
            self._session.checkpoint()
            positions.record_ownership(partitions, owner)
