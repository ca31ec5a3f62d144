"""The reader thread of a worker: it reads the topics of all tables and applies their records to the stores.

The invariants of the loop:
- Only the reader changes stores and progresses. Other threads only read them, and replace the set of assigned input partitions.
- A position is advanced only after its records are applied.
- Records are applied in slices (`row_store.SLICE_ROWS`). While the schema registry does not answer, the same slice is retried,
  and the lag grows.
- A partition that was recreated or truncated loses its rows and is read again from its beginning.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from publisher.errors import USAGE, Fatal
from publisher.kafka.partitions import Partition, in_ranges
from publisher.kafka.topics import Topic
from publisher.runtime.context import Clock
from publisher.runtime.dependency_wait import DependencyUnavailable
from scorer.native import byte_columns
from scorer.settings.tables import TableSettings
from scorer.tables.partition_progress import TablePartitionProgress
from scorer.tables.row_store import SLICE_ROWS, RowStore, TableRecords
from scorer.tables.source import TableSource

log = logging.getLogger(__name__)

READ_SECONDS = 0.05
"""How long a read waits for records. A new assignment is noticed up to this much later."""
END_SECONDS = 0.25
"""The time between two requests for the ends of the partitions. After an assignment, the next request follows at once."""
TOPIC_SECONDS = 5.0
"""The time between two requests for the ids and partitions of the topics."""
ABSENT_TOPIC_SECONDS = 1.0
"""Replaces TOPIC_SECONDS while a topic does not exist, or no broker answers."""
NO_KEY = "no-key"


@dataclass(slots=True)
class ReadTable:
    """A table with the state of its reader.

    Attributes:
        name: the name of the table.
        settings: the settings of the table.
        store: the rows.
        progress: the progress in each partition that is read, by partition number.
        unreadable: the number of records without a key, and of rows that could not be decoded, by reason.
        topic: the topic as the brokers last described it; None if it does not exist, or is not described yet.
    """

    name: str
    settings: TableSettings
    store: RowStore
    progress: dict[int, TablePartitionProgress] = field(default_factory=dict)
    unreadable: Counter[str] = field(default_factory=Counter)
    topic: Topic | None = None

    @property
    def reads_all(self) -> bool:
        """Whether each worker holds all rows (`scope: all`)."""
        return self.settings.scope == "all"

    def count_unreadable(self, reason: str, error: str, partition: int, offset: int) -> None:
        """Count a record that cannot be used; log the first one of each reason."""
        if not self.unreadable[reason]:
            where = f"{self.settings.topic}[{partition}] at offset {offset}" if offset >= 0 else self.settings.topic
            log.warning(
                "table %s: a row in %s cannot be read (%s: %s); later ones are only counted", self.name, where, reason, error
            )
        self.unreadable[reason] += 1

    def read_partitions(self, wanted: frozenset[int]) -> frozenset[int]:
        """Return the partitions to read if `wanted` are the assigned input partitions."""
        if self.topic is None:
            return frozenset()
        every = frozenset(range(self.topic.partitions))
        return every if self.reads_all else every & wanted

    def check_limits(self) -> None:
        """Raise Fatal if the table has more rows, or takes more memory, than its settings allow."""
        rows = len(self.store)
        size = self.store.nbytes
        settings = self.settings
        if rows > settings.max_rows:
            exceeded = f"holds {rows:,} rows; tables.{self.name}.max_rows is {settings.max_rows:,}"
            raise Fatal(f"table {self.name} {exceeded}", _remedy(self.name, "max_rows", settings.scope), USAGE)
        if size > settings.max_bytes:
            exceeded = f"takes {size:,} bytes for {rows:,} rows; tables.{self.name}.max_bytes is {int(settings.max_bytes):,}"
            raise Fatal(f"table {self.name} {exceeded}", _remedy(self.name, "max_bytes", settings.scope), USAGE)


def _remedy(name: str, setting: str, scope: str) -> str:
    spread = "; or set its scope to partition, so that each worker holds a part" if scope == "all" else "; or run more workers"
    return f"raise tables.{name}.{setting} and the memory of the worker{spread}"


class TableReader:
    """The thread that reads the topics of tables.

    Args:
        tables: the tables.
        source: the source of the records. The reader closes it.
        clock: the clock.

    Attributes:
        failure: the error that ended the thread; None while it runs. The worker must raise it.
    """

    def __init__(self, tables: Iterable[ReadTable], source: TableSource, clock: Clock | None = None) -> None:
        self.failure: Fatal | None = None
        self._tables = {table.settings.topic: table for table in tables}
        self._source = source
        self._clock = clock or Clock()
        self._wanted: frozenset[int] = frozenset()
        self._closing = threading.Event()
        self._ends_due_at = float("-inf")
        self._ends_pending: Mapping[Partition, int] | None = None  # the positions when the brokers were asked
        self._topics_due_at = float("-inf")
        self._topics_pending = False
        self._topics_asked_at = float("-inf")
        self._unconfirmed: dict[str, float] = {}  # topics that may have been recreated, by name: since when
        self._without_end: frozenset[Partition] = frozenset()  # partitions without an end in the last answer
        self._absent: set[str] = set()
        self._builds = False  # whether columns are incomplete
        self._thread = threading.Thread(target=self._run, name="tables", daemon=True)

    # ---- any thread ----

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def want(self, partitions: frozenset[int]) -> None:
        """Set the assigned input partitions. The thread reads their table partitions, and requests all ends immediately."""
        self._wanted = partitions
        self._ends_due_at = float("-inf")

    @property
    def runs(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def wait(self, seconds: float) -> None:
        """Wait for `seconds`, or until the reader is closed."""
        self._closing.wait(seconds)

    def join(self, seconds: float | None = None) -> None:
        """Wait until the thread has ended. Do not wait if it was never started."""
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def close(self) -> None:
        """End the thread, and close the source."""
        self._closing.set()
        self.join()

    # ---- the reader ----

    def step(self) -> None:
        """Read and apply the records that arrive within READ_SECONDS, and do the other work of the loop that is due."""
        self._follow_topics()
        self._follow_assignment()
        fetched = self._source.read(0.0 if self._builds else READ_SECONDS)
        for topic, records in fetched.records:
            if not self._apply(self._tables[topic], records):
                return
        for (topic, number), offset in fetched.reached.items():
            self._tables[topic].progress[number].reach(offset)
        for topic, number in sorted(fetched.lost):
            self._restart(topic, [number], "its position is not in the log")
        self._follow_ends()
        self._builds = False
        for table in self._tables.values():
            self._retry(lambda store=table.store: self._build(store))  # type: ignore[misc]
            table.store.compact()
            table.check_limits()

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                self.step()
        except Fatal as error:
            self.failure = error
        except Exception as error:
            log.exception("the reader of the tables failed")
            self.failure = Fatal(f"the reader of the tables failed: {error!r}", "see the log; start the scorer again")
        finally:
            self._source.close()

    def _apply(self, table: ReadTable, records: TableRecords) -> bool:
        """Apply records in slices. Return False if the reader is closed before all of them are applied."""
        without_key = byte_columns.nulls(records.keys)
        for row in without_key:
            place = int(records.partitions[row]), int(records.offsets[row])
            table.count_unreadable(NO_KEY, "the record has no key", *place)
        rows = np.setdiff1d(np.arange(len(records)), without_key) if without_key else np.arange(len(records))
        for start in range(0, len(rows), SLICE_ROWS):
            part = records.select(rows[start : start + SLICE_ROWS]) if len(rows) > SLICE_ROWS or without_key else records
            if not self._retry(lambda part=part: table.store.apply(part)):  # type: ignore[misc]
                return False
        return True

    def _build(self, store: RowStore) -> None:
        self._builds = store.build() or self._builds

    def _retry(self, action: Callable[[], object]) -> bool:
        """Run an action, and repeat it while the schema registry does not answer. Return False if the reader is closed."""
        is_waiting = False
        while not self._closing.is_set():
            try:
                action()
            except DependencyUnavailable as error:
                if not is_waiting:
                    log.warning("the tables wait for a dependency: %s", error)
                is_waiting = True
                self._closing.wait(error.retry_seconds or READ_SECONDS)
            else:
                if is_waiting:
                    log.info("the dependency of the tables is available again")
                return True
        return False

    def _follow_assignment(self) -> None:
        """Start and stop reading partitions of the tables, as the assigned input partitions require."""
        now = self._clock.monotonic()
        for topic, table in self._tables.items():
            wanted = table.read_partitions(self._wanted)
            if stopped := table.progress.keys() - wanted:
                self._source.stop((topic, number) for number in sorted(stopped))
                for number in sorted(stopped):
                    del table.progress[number]
                    table.store.drop(number)
            if started := wanted - table.progress.keys():
                for number in sorted(started):
                    table.progress[number] = TablePartitionProgress(now)
                self._source.start((topic, number) for number in sorted(started))
                self._ends_due_at = float("-inf")
                log.info("table %s: reading %s", table.name, in_ranges((topic, number) for number in started))

    def _restart(self, topic: str, numbers: Iterable[int], reason: str) -> None:
        table = self._tables[topic]
        restarted = sorted(table.progress.keys() & numbers)
        now = self._clock.monotonic()
        for number in restarted:  # first, so that no events are joined while the rows are dropped, which takes seconds
            log.warning("table %s: reading %s[%d] again from its beginning: %s", table.name, topic, number, reason)
            table.progress[number] = TablePartitionProgress(now)
        self._source.stop((topic, number) for number in restarted)
        for number in restarted:
            table.store.drop(number)
        self._source.start((topic, number) for number in restarted)
        self._ends_due_at = float("-inf")

    def _follow_ends(self) -> None:
        """Record the answer to the pending request for end offsets, and request those of all partitions if that is due."""
        if self._ends_pending is not None:
            answer = self._source.answered_ends()
            if answer is None:
                return
            without_end = frozenset(self._ends_pending.keys() - answer.ends.keys())
            self._recheck_topics(topic for topic, _ in (without_end ^ self._without_end) & self._ends_pending.keys())
            self._without_end = without_end
            for (topic, number), end in answer.ends.items():
                progress = self._tables[topic].progress.get(number)
                position = self._ends_pending.get((topic, number))
                if progress is None or position is None or position > progress.position:  # started again in the meantime
                    continue
                if answer.asked_at < progress.started_at:  # an end of a deleted topic, for example
                    continue
                if topic in self._unconfirmed:
                    continue
                if not progress.record_end(answer.asked_at, end, position):
                    self._restart(topic, [number], "the topic ends before the position")
            self._ends_pending = None
        now = self._clock.monotonic()
        positions = {
            (topic, number): progress.position
            for topic, table in self._tables.items()
            for number, progress in table.progress.items()
        }
        if positions and now >= self._ends_due_at:
            self._ends_due_at = now + END_SECONDS
            self._ends_pending = positions
            self._source.ask_ends(positions, now)

    def _recheck_topics(self, names: Iterable[str]) -> None:
        """Ignore the end offsets of these topics until the brokers have returned the topics' ids again.

        Call this when the end offset of a partition becomes unknown, and when it becomes known again. In between, the topic may
        have been deleted and recreated. The stored rows are then from the deleted topic, and the end offset is from the new
        topic. If the end offset were used, the rows could wrongly count as up to date.
        """
        # A partition that stays without an end, because it has no leader, does not concern the other partitions.
        for name in set(names):
            self._unconfirmed[name] = self._clock.monotonic()
            self._topics_due_at = float("-inf")

    def _follow_topics(self) -> None:
        """Request the ids of the topics if that is due, and process the answer to an earlier request.

        A new id means that the topic was recreated. Its partitions are then read from the beginning.
        """
        now = self._clock.monotonic()
        if self._topics_pending:
            answer = self._source.answered_topics()
            if answer is None:
                return
            self._topics_pending = False
            missing = False
            for name, topic in answer.items():
                missing = missing or topic is None
                if topic is not None and self._topics_asked_at >= self._unconfirmed.get(name, float("inf")):
                    del self._unconfirmed[name]
                self._record_topic(self._tables[name], topic)
            missing = missing or len(answer) < len(self._tables)
            self._topics_due_at = now + (ABSENT_TOPIC_SECONDS if missing else TOPIC_SECONDS)
            if any(since > self._topics_asked_at for since in self._unconfirmed.values()):
                self._topics_due_at = now
        if now >= self._topics_due_at:
            self._topics_pending = True
            self._topics_asked_at = now
            self._source.ask_topics(self._tables)

    def _record_topic(self, table: ReadTable, topic: Topic | None) -> None:
        name = table.settings.topic
        if topic is None:
            if name not in self._absent:
                self._absent.add(name)
                log.error("table %s: topic %s does not exist; events that need its rows wait", table.name, name)
            return
        self._absent.discard(name)
        before = table.topic
        table.topic = topic
        if before is not None and before.id != topic.id:
            self._restart(name, [*table.progress], "the topic was recreated")
            self._source.renew()
