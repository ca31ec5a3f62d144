"""The tables of one worker: the object that the worker, the decoders, the metrics and the status records use.

It owns the reader thread. Its methods make no Kafka calls, so they never wait for a broker.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from model_registry.package import field_sources
from model_registry.package.signature import InputField, Signature
from publisher.kafka.partitions import Partition
from publisher.kafka.topics import Topic
from publisher.runtime.context import Clock
from scorer.native import byte_columns
from scorer.settings.tables import TableSettings
from scorer.tables.lookup import JoinedColumns, Partitions
from scorer.tables.partition_progress import TablePartitionProgress
from scorer.tables.reader import ReadTable, TableReader
from scorer.tables.row_blocks import CreateRowDecoder
from scorer.tables.row_store import RowStore
from scorer.tables.source import TableSource

POLL_SECONDS = 0.05
ROW = "row"
NO_ROW = "no-row"
NO_KEY = "no-key"
CHECK_SECONDS = 0.1
"""The time between two checks whether partitions must wait for a table."""
WAITING_CHECK_SECONDS = 0.02
"""Replaces CHECK_SECONDS while partitions wait, so that they are resumed soon."""
MARGIN_SECONDS = 0.25
"""With `when_behind: wait`, a partition is paused when the lag is MARGIN_SECONDS below its limit. A batch that was fetched just
before the pause is joined about MARGIN_SECONDS later, and the lag must not exceed the limit then."""


@dataclass(frozen=True, slots=True)
class TableStatus:
    """The state of one partition of a table in this worker.

    Attributes:
        table: the name of the table.
        partition: the partition of the table's topic.
        rows: the number of rows.
        bytes: the memory of the rows, estimated as the partition's share of the memory of the table.
        position: the offset of the next record to apply.
        end: the newest known end of the partition; 0 if it is not known yet.
        lag_seconds: the time since the position last equalled the end.
        restored: whether the position has reached the end that the partition had when it was assigned.
    """

    table: str
    partition: int
    rows: int
    bytes: int
    position: int
    end: int
    lag_seconds: float
    restored: bool


class Tables:
    """The tables of one worker; see `TableLookup` for `columns`.

    The scoring thread calls `follow` and `waiting`. Any thread may call the other methods.

    Args:
        settings: the settings of the tables, by name.
        source: the source of the records.
        row_decoders: a function from the name of a table to the function that creates decoders for the rows of this table.
        clock: the clock.

    Attributes:
        reader: the thread that reads the topics.
        lookups: the number of keys that were looked up, by table and result: ROW, NO_ROW or NO_KEY.
    """

    def __init__(
        self,
        settings: Mapping[str, TableSettings],
        source: TableSource,
        row_decoders: Callable[[str], CreateRowDecoder],
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or Clock()
        self._tables = {name: _read_table(name, table, row_decoders(name)) for name, table in settings.items()}
        self.reader = TableReader(self._tables.values(), source, self._clock)
        self._assigned_at: dict[Partition, float] = {}
        self.lookups: dict[str, Counter[str]] = {name: Counter() for name in settings}
        self._check_at = float("-inf")
        self._waiting: Mapping[Partition, str] = {}

    def start(self) -> None:
        """Start to read the topics."""
        self.reader.start()

    def close(self) -> None:
        """End the reader thread, and close its connections."""
        self.reader.close()

    # ---- the scoring thread ----

    def restore(self, check: Callable[[], object]) -> None:
        """Wait until the tables of `scope: all` have reached the ends that their topics have now.

        A worker calls this method before it joins its group, so that the other members keep their partitions until then.

        Args:
            check: called repeatedly during the wait. It may raise an error, which ends the wait.

        Raises:
            Fatal: the reader has failed, or a table exceeds its limits.
        """
        since = self._clock.monotonic()
        tables = [table for table in self._tables.values() if table.reads_all]
        while not all(table.topic is not None and _is_restored(table, table.topic, since) for table in tables):
            if self.reader.failure is not None:
                raise self.reader.failure
            check()
            self.reader.wait(POLL_SECONDS)

    def follow(self, assigned: Collection[Partition], arrivals: Collection[Partition] = ()) -> None:
        """Hold the rows of the assigned input partitions, and drop the rows of all others.

        Args:
            assigned: all assigned partitions of the input topics.
            arrivals: the partitions that were assigned just now. `waiting` returns them until the tables have reached the ends
                that their topics have now.

        Raises:
            Fatal: the reader has failed, or a table exceeds its limits.
        """
        if self.reader.failure is not None:
            raise self.reader.failure
        now = self._clock.monotonic()
        is_changed = bool(arrivals) or len(assigned) != len(self._assigned_at)
        if not is_changed and all(partition in self._assigned_at for partition in assigned):
            return
        self._assigned_at = {
            partition: now if partition in arrivals else self._assigned_at.get(partition, now) for partition in assigned
        }
        self.reader.want(frozenset(number for _, number in assigned))
        self._check_at = float("-inf")

    def waiting(self) -> Mapping[Partition, str]:
        """Return the assigned partitions that must not be scored now, each with the reason as a sentence.

        The tables are checked at most every CHECK_SECONDS, or every WAITING_CHECK_SECONDS while partitions wait.
        """
        now = self._clock.monotonic()
        if now >= self._check_at:
            waiting: dict[Partition, str] = {}
            for table in self._tables.values():
                waiting = self._faults(table, now) | waiting
            self._waiting = waiting
            self._check_at = now + (WAITING_CHECK_SECONDS if waiting else CHECK_SECONDS)
        return self._waiting

    def _faults(self, table: ReadTable, now: float) -> dict[Partition, str]:
        """Return the assigned partitions for which the rows of a table are not usable, each with the reason."""
        topic = table.topic
        assigned = self._assigned_at.items()
        if topic is None:
            return dict.fromkeys(self._assigned_at, f"table {table.name}: topic {table.settings.topic} is not available")
        if not table.reads_all:
            faults = {
                partition: _missing_partition(table, topic, partition) or _fault(table, [partition[1]], since, now)
                for partition, since in assigned
            }
            return {partition: reason for partition, reason in faults.items() if reason}
        latest = max(self._assigned_at.values(), default=float("-inf"))
        if not _fault(table, range(topic.partitions), latest, now):  # the usual case, without a check for each partition
            return {}
        faults = {partition: _fault(table, range(topic.partitions), since, now) for partition, since in assigned}
        return {partition: reason for partition, reason in faults.items() if reason}

    def recent_until(self, partitions: Iterable[Partition]) -> float:
        """Return until when rows that are looked up now are recent enough for events of these input partitions.

        Rows are recent enough for `max_lag_seconds` after the time at which the reader last had all records of the topic.

        Returns:
            monotonic seconds; infinity if no table has `when_behind: wait`.
        """
        numbers = {number for _, number in partitions}
        until = float("inf")
        for table in self._tables.values():
            if table.settings.when_behind != "wait" or table.topic is None:
                continue
            for number in range(table.topic.partitions) if table.reads_all else numbers:
                if (progress := table.progress.get(number)) is not None:
                    until = min(until, progress.level_at + table.settings.max_lag_seconds)
        return until

    # ---- any thread ----

    @property
    def waiting_partitions(self) -> int:
        """The number of assigned partitions that wait for a table."""
        return len(self._waiting)

    def columns(
        self, table: str, fields: Sequence[InputField], keys: Sequence[bytes | None], partitions: Partitions
    ) -> JoinedColumns:
        """Look up the table rows for the events of a batch; see `TableLookup.columns`.

        Raises:
            KeyError: there is no such table.
            DependencyUnavailable: the columns of the fields are not built yet, and the schema registry does not answer.
        """
        spaces = np.asarray(partitions, np.int32)
        joined, with_row = self._tables[table].store.columns(fields, keys, spaces)
        without_key = len(byte_columns.nulls(keys))
        self.lookups[table].update({ROW: with_row, NO_ROW: len(keys) - with_row - without_key, NO_KEY: without_key})
        return joined

    def prepare(self, signature: Signature, check: Callable[[], object] = lambda: None) -> None:
        """Let the reader decode the columns of a signature's joined fields, and wait. Look-ups then need not decode rows.

        Args:
            signature: the signature of a version that is being loaded.
            check: called repeatedly during the wait. It may raise an error, which ends the wait.

        Raises:
            FormatMismatch: rows cannot contain the fields.
        """
        for store, fields in self._joined(signature):
            store.request(fields)
        while self.reader.runs and not self.is_prepared(signature):
            check()
            self.reader.wait(POLL_SECONDS)

    def is_prepared(self, signature: Signature) -> bool:
        """Return whether the columns of a signature's joined fields are decoded."""
        return all(store.is_built(fields) for store, fields in self._joined(signature))

    def _joined(self, signature: Signature) -> list[tuple[RowStore, tuple[InputField, ...]]]:
        """Return, for each table with joined fields of a signature, the store of the table and these fields."""
        joined = field_sources.joined_fields(signature).items()
        return [(self._tables[name].store, fields) for name, fields in joined if name in self._tables]

    def get(self, table: str, key: bytes, partition: int | None = None) -> bytes | None:
        """Return the raw bytes of the row with this key; None if there is no row. See `RowStore.get`."""
        return self._tables[table].store.get(key, partition)

    def status(self) -> list[TableStatus]:
        """Return the state of each partition of each table that this worker reads."""
        now = self._clock.monotonic()
        assigned_at = self._assigned_at.copy()
        latest: dict[int, float] = {}
        for (_, number), at in assigned_at.items():
            latest[number] = max(at, latest.get(number, at))
        newest = max(latest.values(), default=float("-inf"))
        statuses = []
        for table in self._tables.values():
            size = table.store.nbytes
            held = max(1, len(table.store))
            for number, progress in sorted(table.progress.copy().items()):
                rows = table.store.count(number)
                since = newest if table.reads_all else latest.get(number, float("-inf"))
                statuses.append(
                    TableStatus(
                        table.name,
                        number,
                        rows,
                        size * rows // held,
                        progress.position,
                        progress.end or 0,
                        round(progress.lag_seconds(now), 3),
                        progress.level_at > float("-inf") and progress.is_restored(since),
                    )
                )
        return statuses

    def unreadable(self) -> dict[str, dict[str, int]]:
        """Return the number of records that could not be read, by table and reason."""
        return {name: dict(table.unreadable.copy()) for name, table in self._tables.items()}

    def sizes(self) -> dict[str, tuple[int, int]]:
        """Return the number of rows and their memory in bytes, by table."""
        return {name: (len(table.store), table.store.nbytes) for name, table in self._tables.items()}


def _read_table(name: str, settings: TableSettings, create_decoder: CreateRowDecoder) -> ReadTable:
    """Return a table without rows, whose store reports rows that cannot be decoded to the table's counter."""
    table: ReadTable

    def report(reason: str, error: str, partition: int, offset: int) -> None:
        table.count_unreadable(reason, error, partition, offset)

    store = RowStore(create_decoder, by_partition=settings.scope == "partition", on_rejected=report)
    table = ReadTable(name, settings, store)
    return table


def _is_restored(table: ReadTable, topic: Topic, since: float) -> bool:
    """Return whether all partitions of a table were read to an end offset that was requested at or after `since`.

    `since` is in monotonic seconds.
    """
    progresses = [table.progress.get(number) for number in range(topic.partitions)]
    return all(progress is not None and progress.is_restored(since) for progress in progresses)


def _missing_partition(table: ReadTable, topic: Topic, partition: Partition) -> str:
    """Return an error text if the table has no partition with the number of the input partition `partition`; else "".

    Rows for the events of this input partition can then never arrive.
    """
    name, number = partition
    if number < topic.partitions:
        return ""
    count = f"has {topic.partitions} partition{'s' if topic.partitions > 1 else ''}, so {name}[{number}] has no rows"
    return (
        f"table {table.name}: topic {table.settings.topic} {count}: give both topics the same number of partitions, "
        f"or set tables.{table.name}.scope to all"
    )


def _fault(table: ReadTable, numbers: Iterable[int], since: float, now: float) -> str:
    """Return why the rows of these partitions of a table are not usable for an input partition; "" if they are.

    `since` is when the input partition was assigned, in monotonic seconds.
    """
    limit = table.settings.max_lag_seconds - MARGIN_SECONDS if table.settings.when_behind == "wait" else float("inf")
    for number in numbers:
        progress = table.progress.get(number)
        if progress is None or not progress.is_restored(since):
            return f"table {table.name} is being restored from {table.settings.topic}[{number}]{_describe(progress)}"
        lag = progress.lag_seconds(now)
        if lag > limit:
            return f"table {table.name} lags by {lag:.1f} s in {table.settings.topic}[{number}]"
    return ""


def _describe(progress: TablePartitionProgress | None) -> str:
    if progress is None or progress.end is None:
        return ""
    return f": offset {progress.position} of {progress.end}"
