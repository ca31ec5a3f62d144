"""Read committed records as they are written, without a consumer group. Partitions can be paused one by one. Thin I/O."""

# `publisher/kafka/topic_follower.py` returns single messages for commands. This reader returns columns, because a join of two
# topics reads many records, and pauses the partitions that are ahead of the join.

import time
from collections import deque
from collections.abc import Collection, Mapping

from confluent_kafka import TopicPartition

from publisher.errors import REFUSED, Fatal, MemberLost
from publisher.kafka import acls, connection, error_codes
from publisher.kafka import clients as kafka
from publisher.kafka.acls import READ, Right
from publisher.kafka.clients import ErrorWatch, KafkaSettings
from publisher.kafka.error_codes import PASSING
from publisher.kafka.partitions import Offsets, Partition
from scorer.fetch.native_source import open_fetch_source
from scorer.fetch.source import FetchedRecords, FetchFailure
from scorer.native.librdkafka import librdkafka_plugin

CALL_RECORDS = 10_000
CALL_BYTES = 16 << 20  # target size of the records of one call, estimated from the record size in the previous call
QUEUE_KIBIBYTES = 8_192  # of prefetched records
EMPTY = FetchedRecords([], [], lambda _: [], [], 0)


class TopicTail:
    """Read the given partitions from the given offsets on. All calls must come from one thread.

    Every call raises Fatal with code 3 if the broker rejects the call, and with code 4 if the broker is unavailable.

    Attributes:
        reached: For each partition, the offset after the last record or transaction marker that was read.
    """

    def __init__(self, settings: KafkaSettings, client_id: str, starts: Offsets) -> None:
        self._settings = settings
        self._watch = ErrorWatch()
        self._paused: frozenset[Partition] = frozenset()
        self.reached = dict(starts)
        self._client_id = client_id
        self._max_records = CALL_RECORDS
        self._open()
        self._assign(starts)

    def _open(self) -> None:
        """Create the consumer, without partitions."""
        fetching = {"enable.partition.eof": True, "error_cb": self._watch, "queued.max.messages.kbytes": QUEUE_KIBIBYTES}
        self._consumer = kafka.plugged_reader(self._settings, self._client_id, librdkafka_plugin(), **fetching)
        self._source = open_fetch_source(self._consumer)

    def add(self, starts: Offsets) -> None:
        """Also read these partitions, from these offsets on."""
        self.reached |= starts
        self._assign(starts)

    def _assign(self, starts: Offsets) -> None:
        positions = [TopicPartition(*partition, offset) for partition, offset in starts.items()]
        self._source.forward(positions)
        self._consumer.incremental_assign(positions)

    def pause_only(self, partitions: Collection[Partition]) -> None:
        """Pause these partitions, and resume all other partitions."""
        wanted = frozenset(partitions)
        if more := wanted - self._paused:
            self._consumer.pause([TopicPartition(*partition) for partition in more])
        if less := self._paused - wanted:
            self._consumer.resume([TopicPartition(*partition) for partition in less])
        self._paused = wanted

    def read(self, seconds: float) -> FetchedRecords:
        """Return the records that arrive within `seconds`."""
        until = time.monotonic() + seconds
        try:
            if self._source.first(seconds) is not None:
                self._source.more(self._max_records - 1, max(0.0, until - time.monotonic()))
        except MemberLost:  # a record left the queue of its partition: read it again
            self._reopen()
            return EMPTY
        fetched = self._source.finish()
        if self._watch.fatal is not None:
            raise connection.refused(self._settings, self._watch.fatal)
        for failure in fetched.failures:
            self._raise_failure(failure)
        records = fetched.columns()
        for partition, _, offsets in records.partitions:
            self.reached[partition] = max(int(offsets[-1]) + 1, self.reached[partition])
        for partition, end in fetched.ends.items():
            self.reached[partition] = max(end, self.reached.get(partition, 0))
        if records.size:
            self._max_records = max(1, min(CALL_RECORDS, CALL_BYTES * len(records.values) // records.size))
        return records

    def _reopen(self) -> None:
        """Replace the consumer, and continue to read all partitions at the offsets in `reached`."""
        self.close()
        self._paused = frozenset()
        self._open()
        self._assign(self.reached)

    def close(self) -> None:
        """Close the consumer."""
        self._source.close()
        self._consumer.close()

    def _raise_failure(self, failure: FetchFailure) -> None:
        """Raise Fatal if the fetch failure is not temporary."""
        partition, _, error = failure
        if kafka.is_group_auth_noise(error) or error.retriable() or error in PASSING:
            return
        if error in error_codes.REFUSED:
            raise acls.refused(self._settings, [Right(READ, acls.TOPIC, partition[0])])
        hint = error_codes.UNDECODABLE_HINT if error in error_codes.UNDECODABLE else "see the broker's log"
        raise Fatal(f"topic {partition[0]} cannot be read: {error.str()}", hint, REFUSED)


class ReadLag:
    """Measures how far a reader is behind, in seconds.

    From time to time, the caller records a snapshot: the current end offset of each partition. The lag is the age of the newest
    snapshot whose end offsets the reader has reached in all partitions.
    """

    def __init__(self, now: float, ends: Mapping[Partition, int]) -> None:
        """Start with the end offsets `ends` at the time `now`, in seconds of any monotonic clock."""
        self._noted = deque([(now, dict(ends))])
        self._current = now

    def record_ends(self, now: float, ends: Mapping[Partition, int]) -> None:
        """Record the end offsets `ends` at the time `now` as a snapshot."""
        self._noted.append((now, dict(ends)))

    def lag_seconds(self, now: float, reached: Mapping[Partition, int]) -> float:
        """Return the lag in seconds.

        The lag is the age of the newest recorded end offsets that the reader has reached in all partitions. If the reader has
        not reached any of them yet, the lag is the age of the first recorded end offsets.

        Args:
            now: The time in seconds of the same clock as in `record_ends`.
            reached: For each partition, the offset up to which the reader has read.
        """
        while self._noted and all(reached.get(partition, 0) >= end for partition, end in self._noted[0][1].items()):
            self._current = self._noted.popleft()[0]
        return now - self._current
