"""Partitions of a lane that are read in the sandbox; see `publisher/kafka/sandboxed_reads.py`.

A process that dies of what it fetches leaves no word, and a relay has no place for one. So a lane reads each partition in the
sandbox when it begins to copy it in a process for the first time, and later if the client reports a batch that it cannot
decompress.
"""

from collections.abc import Iterable

from publisher.kafka.partitions import Partition
from publisher.kafka.sandbox_program import Row
from publisher.kafka.sandboxed_reads import Sandboxed, Taken
from publisher.relay.transform import Route


class Suspects:
    """Of one lane, whose thread owns it. `known` are the partitions that this process has begun to copy, over all lives."""

    def __init__(self, sandbox: Sandboxed, known: set[Partition]) -> None:
        self._sandbox = sandbox
        self._known = known
        self._reported: set[Partition] = set()

    def __bool__(self) -> bool:
        return bool(self._sandbox)

    def __contains__(self, partition: object) -> bool:
        return partition in self._sandbox

    def begin(self, routes: Iterable[Route]) -> list[Route]:
        """Add the routes that are new in this process. Returns the others, which the lane's consumer reads."""
        others = []
        for route in routes:
            place = route.topic, route.partition
            if place in self._known:
                others.append(route)
            else:
                self._known.add(place)
                self._sandbox.add(place, route.next)
        return others

    def report(self, partition: Partition) -> None:
        """The client cannot decompress the next batch of this partition."""
        self._reported.add(partition)

    def reported(self) -> set[Partition]:
        """The partitions that were reported since the last call."""
        reported, self._reported = self._reported, set()
        return reported

    def add(self, route: Route) -> None:
        """Read this route in the sandbox, from its next offset."""
        self._sandbox.add((route.topic, route.partition), route.next)

    def forget(self, partition: Partition) -> None:
        self._sandbox.forget([partition])

    def take(self) -> Taken | None:
        """What the sandbox has read by now."""
        return self._sandbox.take(0.0)

    def close(self) -> None:
        self._sandbox.close()


def carried_at_once(rows: list[Row], most: int) -> list[Row]:
    """The rows to publish first: at most so many, or one alone whose headers cannot be read."""
    readable = next((at for at, row in enumerate(rows[:most]) if row.unread is not None), most)
    return rows[: max(readable, 1)]
