"""The partitions that a copying thread reads in the sandbox; see `publisher/kafka/sandboxed_reads.py`.

The sandbox is a child process that reads a partition whose content may crash its reader. A partition is read in the sandbox
when the process begins to copy it for the first time, because otherwise a crash could not be attributed to the partition. It is
read there again if the client reports a batch that it cannot decompress.
"""

from collections.abc import Iterable

from publisher.kafka.partitions import Partition
from publisher.kafka.sandbox_program import Row
from publisher.kafka.sandboxed_reads import Sandboxed, SandboxResult
from publisher.relay.transform import Route


class SandboxedPartitions:
    """The partitions of one copying thread that are read in its sandbox. The thread owns the instance.

    Args:
        sandbox: the sandbox of the thread.
        begun: the partitions that this process has begun to copy, over all runs.
    """

    def __init__(self, sandbox: Sandboxed, begun: set[Partition]) -> None:
        self._sandbox = sandbox
        self._begun = begun
        self._reported: set[Partition] = set()

    def __bool__(self) -> bool:
        return bool(self._sandbox)

    def __contains__(self, partition: object) -> bool:
        return partition in self._sandbox

    def begin(self, routes: Iterable[Route]) -> list[Route]:
        """Read the partitions of these routes in the sandbox, unless this process has copied them before.

        Returns:
            The other routes, which the consumer must read: this process has copied them before.
        """
        others = []
        for route in routes:
            partition = route.topic, route.partition
            if partition in self._begun:
                others.append(route)
            else:
                self._begun.add(partition)
                self._sandbox.add(partition, route.next)
        return others

    def report(self, partition: Partition) -> None:
        """Record that the client cannot decompress the next batch of this partition."""
        self._reported.add(partition)

    def take_reported(self) -> set[Partition]:
        """Return the partitions that were passed to `report` since the last call of this method."""
        reported = self._reported
        self._reported = set()
        return reported

    def add(self, route: Route) -> None:
        """Read the partition of this route in the sandbox, from the route's next offset on."""
        self._sandbox.add((route.topic, route.partition), route.next)

    def forget(self, partition: Partition) -> None:
        """Stop reading this partition in the sandbox."""
        self._sandbox.forget([partition])

    def take(self) -> SandboxResult | None:
        """Return the next result of the sandbox, without waiting; None if there is none."""
        return self._sandbox.take(0.0)

    def close(self) -> None:
        """End the process of the sandbox."""
        self._sandbox.close()


def rows_to_copy(rows: list[Row], most: int) -> list[Row]:
    """Return the sandbox's records for the next transaction: at most `most`, all before the first with unreadable headers.

    If the headers of the first record are unreadable, only this record is returned.
    """
    first_unread = next((index for index, row in enumerate(rows[:most]) if row.unread is not None), most)
    return rows[: max(first_unread, 1)]
