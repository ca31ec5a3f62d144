"""Read committed records of growing partitions outside any consumer group; single partitions can be paused. Thin I/O."""

from collections import deque
from collections.abc import Collection, Mapping

from confluent_kafka import TopicPartition

from publisher.errors import REFUSED, Fatal
from publisher.kafka import acls, connection, error_codes
from publisher.kafka import clients as kafka
from publisher.kafka.acls import READ, Right
from publisher.kafka.clients import ErrorWatch, KafkaSettings
from publisher.kafka.error_codes import PASSING
from publisher.kafka.partitions import Offsets, Partition
from scorer.native.librdkafka import librdkafka_plugin
from scorer.rollout.canary_analysis.fetch import Failure, TakenRecords, source_of

CALL_RECORDS = 10_000
CALL_BYTES = 16 << 20  # of the records of one call, if they are as large as those of the previous call
QUEUE_KIBIBYTES = 8_192  # fetched ahead


class TopicTail:
    """A consumer of the given partitions, from the given offsets on. All calls come from one thread.

    Every call raises Fatal: with code 3 if the broker rejects it, with code 4 if the broker is unavailable.

    Attributes:
        reached: For each partition, the offset behind the last record or transaction marker that was read.
    """

    def __init__(self, settings: KafkaSettings, client_id: str, starts: Offsets) -> None:
        self._settings = settings
        self._watch = ErrorWatch()
        self._held: frozenset[Partition] = frozenset()
        self.reached = dict(starts)
        fetching = {"enable.partition.eof": True, "error_cb": self._watch, "queued.max.messages.kbytes": QUEUE_KIBIBYTES}
        self._consumer = kafka.plugged_reader(settings, client_id, librdkafka_plugin(), **fetching)
        self._source = source_of(self._consumer)
        self._most = CALL_RECORDS
        self._read(starts)

    def add(self, starts: Offsets) -> None:
        """Read further partitions, from these offsets on."""
        self.reached |= starts
        self._read(starts)

    def _read(self, starts: Offsets) -> None:
        positions = [TopicPartition(*partition, offset) for partition, offset in starts.items()]
        self._source.forward(positions)
        self._consumer.incremental_assign(positions)

    def hold(self, partitions: Collection[Partition]) -> None:
        """Pause exactly these partitions; all others are resumed."""
        wanted = frozenset(partitions)
        if more := wanted - self._held:
            self._consumer.pause([TopicPartition(*partition) for partition in more])
        if less := self._held - wanted:
            self._consumer.resume([TopicPartition(*partition) for partition in less])
        self._held = wanted

    def take(self, seconds: float) -> TakenRecords:
        """Return the records that arrive within `seconds`."""
        taken = self._source.take(self._most, seconds)
        if self._watch.fatal is not None:
            raise connection.refused(self._settings, self._watch.fatal)
        for failure in taken.failures:
            self._mind(failure)
        for partition, _, offsets in taken.batches:
            self.reached[partition] = max(int(offsets[-1]) + 1, self.reached[partition])
        for partition, end in taken.ends.items():
            self.reached[partition] = max(end, self.reached.get(partition, 0))
        if taken.size:
            self._most = max(1, min(CALL_RECORDS, CALL_BYTES * len(taken.values) // taken.size))
        return taken

    def close(self) -> None:
        """Close the consumer."""
        self._source.close()
        self._consumer.close()

    def _mind(self, failure: Failure) -> None:
        partition, _, error = failure
        if kafka.is_group_auth_noise(error) or error.retriable() or error in PASSING:
            return
        if error in error_codes.REFUSED:
            raise acls.refused(self._settings, [Right(READ, acls.TOPIC, partition[0])])
        hint = error_codes.UNDECODABLE_HINT if error in error_codes.UNDECODABLE else "see the broker's log"
        raise Fatal(f"topic {partition[0]} cannot be read: {error.str()}", hint, REFUSED)


class ReadLag:
    """The lag of a reader as a time: from the log ends at several times, and the later times at which they are reached."""

    def __init__(self, now: float, ends: Mapping[Partition, int]) -> None:
        """Start with the log ends at `now`, in seconds of any monotonic clock."""
        self._noted = deque([(now, dict(ends))])
        self._current = now

    def note(self, now: float, ends: Mapping[Partition, int]) -> None:
        """Record the log ends at `now`."""
        self._noted.append((now, dict(ends)))

    def behind(self, now: float, reached: Mapping[Partition, int]) -> float:
        """Return the seconds since the newest recorded ends that are reached; since the first ones if none are."""
        while self._noted and all(reached.get(partition, 0) >= end for partition, end in self._noted[0][1].items()):
            self._current = self._noted.popleft()[0]
        return now - self._current
