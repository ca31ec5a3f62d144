"""Reads partitions as they grow, committed records only, outside any group: any of them may be held back. Thin I/O."""

from collections import deque
from collections.abc import Collection, Mapping
from itertools import compress, count, pairwise
from operator import ne
from typing import cast

from confluent_kafka import KafkaError, Message, TopicPartition

from publisher.errors import REFUSED, Fatal
from publisher.kafka import clients as kafka
from publisher.kafka import connection, error_codes, rights
from publisher.kafka.clients import ErrorWatch, KafkaSettings
from publisher.kafka.error_codes import END, PASSING
from publisher.kafka.partitions import Offsets, Partition
from publisher.kafka.reader import Batch
from publisher.kafka.rights import READ, Right

CALL_RECORDS = 5_000
QUEUE_KIBIBYTES = 16_384  # fetched ahead


class Feed:
    """`reached` has the offset behind the last record, or transaction marker, of each partition that was read. Everything
    raises Fatal: 3 where the broker refuses, 4 where it does not answer."""

    def __init__(self, settings: KafkaSettings, client_id: str, starts: Offsets) -> None:
        self._settings = settings
        self._watch = ErrorWatch()
        self._held: frozenset[Partition] = frozenset()
        self.reached = dict(starts)
        fetching = {"enable.partition.eof": True, "error_cb": self._watch, "queued.max.messages.kbytes": QUEUE_KIBIBYTES}
        self._consumer = kafka.reader(settings, client_id, **fetching)
        self._consumer.assign([TopicPartition(*partition, offset) for partition, offset in starts.items()])

    def add(self, starts: Offsets) -> None:
        """Read these partitions too, from these offsets."""
        self.reached |= starts
        self._consumer.incremental_assign([TopicPartition(*partition, offset) for partition, offset in starts.items()])

    def hold(self, partitions: Collection[Partition]) -> None:
        """Read no more of these for now, and of all others again."""
        wanted = frozenset(partitions)
        if more := wanted - self._held:
            self._consumer.pause([TopicPartition(*partition) for partition in more])
        if less := self._held - wanted:
            self._consumer.resume([TopicPartition(*partition) for partition in less])
        self._held = wanted

    def take(self, seconds: float) -> list[Batch]:
        """Records that come within so many seconds."""
        messages = self._consumer.consume(CALL_RECORDS, seconds)
        if self._watch.fatal is not None:
            raise connection.refused(self._settings, self._watch.fatal)
        bad = [row for row, error in enumerate(map(Message.error, messages)) if error is not None]
        for row in reversed(bad):
            self._mind(messages.pop(row))
        offsets = cast("list[int]", [*map(Message.offset, messages)])
        places = cast("list[Partition]", [*zip(map(Message.topic, messages), map(Message.partition, messages), strict=True)])
        others = compress(count(1), map(ne, places, places[1:]))  # rows of another partition than the row before
        found: dict[Partition, Batch] = {}
        for start, end in pairwise([0, *others, len(places)]):
            if start < end:
                batch = found.setdefault(places[start], Batch(places[start], [], []))
                batch.offsets.extend(offsets[start:end])
                batch.messages.extend(messages[start:end])
        for partition, batch in found.items():
            self.reached[partition] = max(batch.offsets[-1] + 1, self.reached[partition])
        return list(found.values())

    def close(self) -> None:
        self._consumer.close()

    def _mind(self, message: Message) -> None:
        """What a message that is an error says."""
        partition: Partition = (message.topic() or "", message.partition() or 0)
        error = cast("KafkaError", message.error())
        if error in END:
            self.reached[partition] = max(message.offset() or 0, self.reached.get(partition, 0))
        elif kafka.of_no_group(error) or error.retriable() or error in PASSING:
            return
        elif error in error_codes.REFUSED:
            raise rights.refused(self._settings, [Right(READ, rights.TOPIC, partition[0])])
        else:
            raise Fatal(f"topic {partition[0]} cannot be read: {error.str()}", "see the broker's log", REFUSED)


class Lag:
    """How far a reader is behind, in time: the ends are noted now and then, and passed later."""

    def __init__(self, now: float, ends: Mapping[Partition, int]) -> None:
        """`ends` as they were at `now`, in seconds of any clock."""
        self._noted = deque([(now, dict(ends))])
        self._current = now

    def note(self, now: float, ends: Mapping[Partition, int]) -> None:
        self._noted.append((now, dict(ends)))

    def behind(self, now: float, reached: Mapping[Partition, int]) -> float:
        """Seconds since the newest ends that are reached were noted; since the first note where none is."""
        while self._noted and all(reached.get(partition, 0) >= end for partition, end in self._noted[0][1].items()):
            self._current = self._noted.popleft()[0]
        return now - self._current
