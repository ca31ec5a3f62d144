"""Messages of partitions whose events are taken one at a time, kept aside until it is their turn. No client calls in here."""

from collections import deque
from collections.abc import Iterable, Sequence

from confluent_kafka import Message

Partition = tuple[str, int]


class Isolation:
    """`partitions` are isolated. What was read of them together with others waits here, at most one take of each."""

    def __init__(self) -> None:
        self.partitions: set[Partition] = set()
        self._waiting: dict[Partition, deque[Message]] = {}
        self._turn = False

    @property
    def waiting(self) -> set[Partition]:
        """The partitions with messages here; they are not to be read until these are gone."""
        return set(self._waiting)

    def split(self, messages: Sequence[Message]) -> list[Message]:
        """Keep those of isolated partitions; the others come back, in their order."""
        if not self.partitions:
            return list(messages)
        others = []
        for message in messages:
            partition: Partition = message.topic(), message.partition()  # type: ignore[assignment]
            if partition in self.partitions:
                self._waiting.setdefault(partition, deque()).append(message)
            else:
                others.append(message)
        return others

    def next(self) -> list[Message]:
        """The next message, every second time; nothing when it is the others' turn. Partitions take turns.

        Of a partition that is not isolated any more: all that still waits of it.
        """
        self._turn = not self._turn and bool(self._waiting)
        if not self._turn:
            return []
        partition = next(iter(self._waiting))
        messages = self._waiting.pop(partition)
        if partition not in self.partitions:
            return list(messages)
        first = messages.popleft()
        if messages:
            self._waiting[partition] = messages
        return [first]

    def forget(self, partitions: Iterable[Partition]) -> None:
        """Drop what waits of these: they are read again from elsewhere, or by others."""
        for partition in partitions:
            self._waiting.pop(partition, None)
