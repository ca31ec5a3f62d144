"""The native fetch source, which reads messages from a librdkafka queue directly into columns.

See `FetchSource` in source.py. The source depends on the C library of `scorer/native`. Rebalances happen only in the consumer's
`poll`, so the assignment never changes while events are read from the queue.
"""

import time
from collections.abc import Mapping, Sequence

import numpy as np
from confluent_kafka import Consumer, KafkaError, TopicPartition
from numpy.typing import NDArray

from publisher.errors import MemberLost
from publisher.kafka.partitions import Partition
from scorer.decoding.batch import Batch, End
from scorer.decoding.columnar_batch import ColumnarBatch
from scorer.fetch.python_source import PythonFetchSource
from scorer.fetch.source import SHORTEST_WAIT, FetchedRecords, FetchFailure, FetchSource, PartitionRecords
from scorer.native.fetch import MessageColumns, NativeFetcher
from scorer.native.librdkafka import LibrdkafkaPlugin, librdkafka_plugin


def plugin() -> LibrdkafkaPlugin | None:
    """Return the librdkafka plugin for the clients of a scorer; None if the native library is not available."""
    return librdkafka_plugin()


def open_fetch_source(consumer: Consumer) -> FetchSource:
    """Return the native source if the consumer was created with the plugin, otherwise the source in Python."""
    native = librdkafka_plugin()
    handle = getattr(consumer, "handle", 0)
    return NativeFetchSource(consumer, NativeFetcher(native, handle)) if native and handle else PythonFetchSource(consumer)


class NativeFetchSource:
    """The native fetch source of one consumer; see `FetchSource`."""

    def __init__(self, consumer: Consumer, taker: NativeFetcher) -> None:
        self._consumer = consumer
        self._taker = taker
        self._failures: list[FetchFailure] = []

    @property
    def count(self) -> int:
        return self._taker.sizes.messages

    @property
    def size(self) -> int:
        return self._taker.sizes.bytes

    @property
    def largest(self) -> int:
        return self._taker.sizes.largest

    def forward(self, partitions: list[TopicPartition]) -> None:
        self._taker.forward(partitions)

    def first(self, wait: float) -> int | None:
        self._begin()
        self._poll_group()
        if self._failures or not self._taker.collect(1, wait) or self._taker.sizes.errors:
            return None
        return self._taker.first_timestamp_ms()

    def _begin(self) -> None:
        self._failures = []
        if self.count or self._taker.sizes.ends:  # an earlier fetch was interrupted
            self._taker.discard()

    def more(self, most: int, wait: float) -> int:
        until = time.monotonic() + wait
        count = self._taker.collect(most, wait)
        while count < most and (left := until - time.monotonic()) >= SHORTEST_WAIT:
            count += self._taker.collect(most - count, left)
        return count

    def finish(self) -> "FetchedColumns":
        ends = self._taker.ends()
        return FetchedColumns(self._taker.columns() if self.count else None, self._failures, ends)

    def skip(self, most: int, wait: float) -> Sequence[FetchFailure]:
        deadline = time.monotonic() + wait
        self._begin()
        self._poll_group()
        while self.count < most and (left := deadline - time.monotonic()) > 0:
            self._taker.collect(most - self.count, left)
        return self.finish().failures

    def close(self) -> None:
        self._taker.close()

    def _poll_group(self) -> None:
        """Poll the consumer once to run the callbacks of the group. Record a failure that the poll returns."""
        # Events and failures of partitions arrive in the librdkafka queue that this source reads. If the poll returns an event
        # anyway, the method raises MemberLost, because the event would otherwise be lost.
        message = self._consumer.poll(0)
        if message is None:
            return
        partition = message.topic() or "", message.partition() or 0
        error = message.error()
        if error is None:  # it belongs to no batch and would be lost
            raise MemberLost(f"an event of {partition[0]}[{partition[1]}] arrived outside the queue of its partition")
        self._failures.append((partition, message.offset(), error))


class FetchedColumns:
    """The result of one native fetch, as columns; see `FetchedEvents` in source.py."""

    def __init__(self, columns: MessageColumns | None, failures: Sequence[FetchFailure], ends: Mapping[Partition, int]) -> None:
        self.failures = list(failures)
        self.ends = ends
        self._columns = columns
        self._is_event: NDArray[np.bool_] | None = None  # by row; None if every row is an event
        if columns is None:
            self.partitions: set[Partition] = set()
            return
        if columns.codes.any():
            self._is_event = columns.codes == 0
            self.failures += [_failure(columns, row) for row in np.flatnonzero(columns.codes).tolist()]
        lanes = columns.lanes if self._is_event is None else columns.lanes[self._is_event]
        self.partitions = {columns.places[lane] for lane in np.flatnonzero(np.bincount(lanes)).tolist()}

    def batch(self, without: set[Partition], end: End) -> Batch | None:
        columns = self._columns
        if columns is None or not self.partitions - without:
            return None
        if self._is_event is None and not without & self.partitions:
            return ColumnarBatch(columns, end)
        wanted = np.array([place not in without for place in columns.places])[columns.lanes]
        return _listed(columns, np.flatnonzero(wanted & (columns.codes == 0)).tolist(), end)

    def columns(self) -> FetchedRecords:
        columns = self._columns
        if columns is None:
            return FetchedRecords([], [], lambda _: [], [], 0)
        rows = np.flatnonzero(columns.codes == 0)
        lanes = columns.lanes[rows]
        partitions = []
        for lane in np.unique(lanes).tolist():
            lane_rows = rows[lanes == lane]
            partitions.append(PartitionRecords(columns.places[lane], lane_rows, columns.offsets[lane_rows]))
        return FetchedRecords(columns.values, columns.keys, columns.headers_at, partitions, int(columns.values.ends[-1]))


def _failure(columns: MessageColumns, row: int) -> FetchFailure:
    description = (columns.values[row] or b"").decode(errors="replace")
    offset = int(columns.offsets[row])
    partition = columns.places[columns.lanes[row]]
    return partition, offset if offset >= 0 else None, KafkaError(int(columns.codes[row]), description or None)


def _listed(columns: MessageColumns, rows: list[int], end: End) -> Batch:
    """Return the events at these indices as a batch of lists."""
    whole = ColumnarBatch(columns, end)
    at = {row: at for at, row in enumerate(rows)}
    part = Batch(
        topics=[whole.topics[row] for row in rows],
        partitions=[whole.partitions[row] for row in rows],
        offsets=[whole.offsets[row] for row in rows],
        keys=[whole.keys[row] for row in rows],
        values=[whole.values[row] for row in rows],
        timestamps=[whole.timestamps[row] for row in rows],
        headers=[whole.headers[row] for row in rows],
        end=end,
        unread=[at[row] for row in whole.unread if row in at],
    )
    last = {place: int(columns.leader_epochs[rows[row]]) for place, row in part.last.items()}
    part.leader_epochs = {place: None if epoch < 0 else epoch for place, epoch in last.items()}
    return part
