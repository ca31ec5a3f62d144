"""The native source: partitions are read from a separate queue directly into columns. See `FetchSource` in fetch.py.

Group events arrive only in the consumer's `poll`: assignments never change during a fetch.
"""

import time
from collections.abc import Mapping, Sequence

import numpy as np
from confluent_kafka import Consumer, KafkaError, TopicPartition
from numpy.typing import NDArray

from publisher.errors import MemberLost
from publisher.kafka.partitions import Partition
from scorer.consumer.fetch import SHORTEST_WAIT, FetchFailure, FetchSource, PythonFetchSource
from scorer.decoding.batch import Batch, End
from scorer.decoding.columnar_batch import ColumnarBatch
from scorer.native.fetch import MessageColumns, NativeFetcher
from scorer.native.librdkafka import LibrdkafkaPlugin, librdkafka_plugin


def plugin() -> LibrdkafkaPlugin | None:
    """Return the plugin for the clients of a scorer; None without the native part."""
    return librdkafka_plugin()


def open_fetch_source(consumer: Consumer) -> FetchSource:
    """Return the native source if this consumer was created for it, else the one in Python."""
    native, handle = librdkafka_plugin(), getattr(consumer, "handle", 0)
    return NativeFetchSource(consumer, NativeFetcher(native, handle)) if native and handle else PythonFetchSource(consumer)


class NativeFetchSource:
    """The native source of one consumer."""

    def __init__(self, consumer: Consumer, taker: NativeFetcher) -> None:
        self._consumer = consumer
        self._taker = taker
        self._told: list[FetchFailure] = []

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
        self._hear()
        if self._told or not self._taker.collect(1, wait) or self._taker.sizes.errors:
            return None
        return self._taker.first_time()

    def _begin(self) -> None:
        self._told = []
        if self.count or self._taker.sizes.ends:  # a call before this one was cut short
            self._taker.drop()

    def more(self, most: int, wait: float) -> int:
        until = time.monotonic() + wait
        came = self._taker.collect(most, wait)
        while came < most and (left := until - time.monotonic()) >= SHORTEST_WAIT:
            came += self._taker.collect(most - came, left)
        return came

    def taken(self) -> "FetchedColumns":
        ends = self._taker.ends()
        return FetchedColumns(self._taker.columns() if self.count else None, self._told, ends)

    def skip(self, most: int, wait: float) -> Sequence[FetchFailure]:
        deadline = time.monotonic() + wait
        self._begin()
        self._hear()
        while self.count < most and (left := deadline - time.monotonic()) > 0:
            self._taker.collect(most - self.count, left)
        return self.taken().failures

    def close(self) -> None:
        self._taker.close()

    def _hear(self) -> None:
        """Poll the group."""
        message = self._consumer.poll(0)
        if message is None:
            return
        place = message.topic() or "", message.partition() or 0
        error = message.error()
        if error is None:  # it would be lost: it is no part of any batch
            raise MemberLost(f"an event of {place[0]}[{place[1]}] did not come by the queue of its partition")
        self._told.append((place, message.offset(), error))


class FetchedColumns:
    """See `FetchedEvents` in fetch.py."""

    def __init__(self, columns: MessageColumns | None, told: Sequence[FetchFailure], ends: Mapping[Partition, int]) -> None:
        self.failures = list(told)
        self.ends = ends
        self._columns = columns
        self._keep: NDArray[np.bool_] | None = None
        if columns is None:
            self.partitions: set[Partition] = set()
            return
        if columns.codes.any():
            self._keep = columns.codes == 0
            self.failures += [_failure(columns, row) for row in np.flatnonzero(columns.codes).tolist()]
        lanes = columns.lanes if self._keep is None else columns.lanes[self._keep]
        self.partitions = {columns.places[lane] for lane in np.flatnonzero(np.bincount(lanes)).tolist()}

    def batch(self, without: set[Partition], end: End) -> Batch | None:
        columns = self._columns
        if columns is None or not self.partitions - without:
            return None
        if self._keep is None and not without & self.partitions:
            return ColumnarBatch(columns, end)
        wanted = np.array([place not in without for place in columns.places])[columns.lanes]
        return _listed(columns, np.flatnonzero(wanted & (columns.codes == 0)).tolist(), end)


def _failure(columns: MessageColumns, row: int) -> FetchFailure:
    said = (columns.values[row] or b"").decode(errors="replace")
    offset = int(columns.offsets[row])
    place = columns.places[columns.lanes[row]]
    return place, offset if offset >= 0 else None, KafkaError(int(columns.codes[row]), said or None)


def _listed(columns: MessageColumns, rows: list[int], end: End) -> Batch:
    """Return some of the events as lists."""
    whole, at = ColumnarBatch(columns, end), {row: at for at, row in enumerate(rows)}
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
