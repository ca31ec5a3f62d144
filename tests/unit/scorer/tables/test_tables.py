"""The tables of a worker: restore before scoring, assignment, lag, recreated topics, and records that cannot be used."""

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from model_registry.package.signature import InputField, Output, Signature, TensorInput
from publisher.errors import Fatal
from publisher.kafka.topics import Topic
from publisher.runtime.context import Clock
from publisher.runtime.dependency_wait import DependencyUnavailable
from scorer.decoding.table_rows import row_decoder_factory
from scorer.tables.reader import ABSENT_TOPIC_SECONDS, END_SECONDS, TOPIC_SECONDS
from scorer.tables.row_blocks import CreateRowDecoder
from scorer.tables.tables import CHECK_SECONDS, Tables
from tests.unit.scorer.minimal import minimal
from tests.unit.scorer.tables.fake_source import FakeSource

AGE = InputField("t.age", "float32", required=False, default=-1.0, source="table:t")
SIGNATURE = Signature((TensorInput("x", "float32", (AGE,)),), (Output(None, "y"),))
IN_0 = ("in", 0)
IN_1 = ("in", 1)


def row(age: float) -> bytes:
    return json.dumps({"age": age}).encode()


class Worker:
    """A worker without its loop: the tables with a clock, whose reader is moved by hand."""

    def __init__(self, source: FakeSource | None = None, **table: Any) -> None:
        self.now = 100.0
        self.source = source or FakeSource({"f": Topic("id", 2)})
        self.settings = minimal(tables={"t": {"topic": "f"} | table})
        self.tables = self.create(lambda name: row_decoder_factory(name, self.settings))

    def create(self, row_decoders: Callable[[str], CreateRowDecoder]) -> Tables:
        clock = Clock(monotonic=lambda: self.now)
        return Tables(self.settings.tables, self.source, row_decoders, clock)

    def read(self, steps: int = 20, seconds: float = 0.0) -> None:
        for _ in range(steps):
            self.now += seconds / steps
            self.tables.reader.step()

    def waiting(self) -> list[tuple[str, int]]:
        self.now += CHECK_SECONDS
        return sorted(self.tables.waiting())

    def ages(self, *keys: bytes, partition: int = 0) -> list[float]:
        joined = self.tables.columns("t", [AGE], keys, [partition] * len(keys))
        ages: list[float] = joined.tensors["t.age"][:, 0].tolist()
        return ages


def test_a_partition_waits_until_its_table_has_the_end_of_the_assignment() -> None:
    worker = Worker()
    worker.source.write(("f", 0), *((b"%d" % number, row(number)) for number in range(30)))
    worker.tables.follow([IN_0, IN_1], [IN_0, IN_1])
    assert worker.waiting() == [IN_0, IN_1]
    worker.read(5)
    assert worker.waiting() == [IN_0]
    worker.read(30)
    assert worker.waiting() == []
    assert worker.ages(b"29", b"30") == [29, -1]


def test_a_partition_that_is_assigned_later_waits_for_the_end_of_its_own_assignment() -> None:
    worker = Worker(scope="all")
    worker.tables.follow([IN_0], [IN_0])
    worker.read()
    worker.now += 5
    worker.source.write(("f", 1), *[(b"a", row(number)) for number in range(10)])
    worker.tables.follow([IN_0, IN_1], [IN_1])
    assert worker.waiting() == [IN_1]
    worker.read(3)
    assert worker.waiting() == [IN_1]
    worker.read(10, seconds=END_SECONDS)
    assert worker.waiting() == []


def test_a_worker_waits_for_all_rows_of_a_table_of_scope_all_before_it_joins_its_group() -> None:
    worker = Worker(scope="all")
    worker.source.write(("f", 1), *[(b"a", row(number)) for number in range(10)])
    checks: list[int] = []

    def check() -> None:
        checks.append(worker.tables.sizes()["t"][0])
        worker.read(1, seconds=END_SECONDS)

    worker.tables.restore(check)
    assert len(checks) >= 5
    assert worker.ages(b"a") == [9]


def test_a_worker_does_not_wait_for_the_rows_of_its_partitions_before_it_joins_its_group() -> None:
    worker = Worker()
    worker.tables.restore(lambda: pytest.fail("there is nothing to wait for"))


def test_a_worker_holds_only_the_rows_of_its_partitions() -> None:
    worker = Worker()
    for number in (0, 1):
        worker.source.write(("f", number), (b"a", row(number)))
    worker.tables.follow([IN_1], [IN_1])
    worker.read()
    assert [(status.partition, status.rows, status.restored) for status in worker.tables.status()] == [(1, 1, True)]
    assert (worker.ages(b"a", partition=1), worker.ages(b"a", partition=0)) == ([1], [-1])
    worker.tables.follow([IN_0], [IN_0])
    worker.read()
    assert (worker.ages(b"a", partition=1), worker.ages(b"a", partition=0)) == ([-1], [0])


def test_a_worker_holds_all_rows_of_a_table_of_scope_all() -> None:
    worker = Worker(scope="all")
    for number in (0, 1):
        worker.source.write(("f", number), (b"key-%d" % number, row(number)))
    worker.tables.follow([("in", 7)], [("in", 7)])
    worker.read()
    assert worker.waiting() == []
    assert worker.ages(b"key-0", b"key-1", partition=7) == [0, 1]


def test_a_partition_that_is_missing_in_the_table_waits_with_the_remedy_until_it_is_added() -> None:
    worker = Worker()
    worker.tables.follow([("in", 2), IN_1], [("in", 2), IN_1])
    worker.read()
    assert worker.waiting() == [("in", 2)]
    assert worker.tables.waiting()["in", 2] == (
        "table t: topic f has 2 partitions, so in[2] has no rows: give both topics the same number of partitions, "
        "or set tables.t.scope to all"
    )
    worker.source.topics["f"] = Topic("id", 3)
    worker.read(40, seconds=TOPIC_SECONDS + 1)
    assert worker.waiting() == []


def test_a_partition_that_was_revoked_and_assigned_again_keeps_its_rows_and_waits_again() -> None:
    worker = Worker()
    worker.source.write(("f", 0), (b"a", row(1)))
    worker.tables.follow([IN_0], [IN_0])
    worker.read()
    worker.now += 1
    worker.tables.follow([IN_0], [IN_0])
    assert worker.waiting() == [IN_0]
    assert worker.ages(b"a") == [1]
    worker.read()
    assert worker.waiting() == []


@pytest.mark.parametrize(("when_behind", "waiting"), [("wait", [IN_0]), ("score", [])])
def test_a_table_that_lags_too_much_is_waited_for_only_if_that_is_configured(when_behind: str, waiting: list[Any]) -> None:
    worker = Worker(when_behind=when_behind, max_lag_seconds=5)
    worker.tables.follow([IN_0], [IN_0])
    worker.read()
    assert worker.waiting() == []
    worker.source.is_available = False
    worker.read(20, seconds=6)
    assert worker.waiting() == waiting
    (status,) = worker.tables.status()
    assert 5 < status.lag_seconds < 7
    worker.source.is_available = True
    worker.read(20, seconds=1)
    assert worker.waiting() == []


def test_a_table_partition_without_a_leader_does_not_delay_the_other_partitions() -> None:
    worker = Worker(when_behind="wait", max_lag_seconds=1)
    worker.source.write(("f", 0), (b"a", row(1)))
    worker.source.leaderless = {("f", 1)}
    worker.tables.follow([IN_0, IN_1], [IN_0, IN_1])
    worker.read(40, seconds=2)
    assert worker.waiting() == [IN_1]
    worker.read(40, seconds=4)
    assert worker.waiting() == [IN_1]
    worker.source.leaderless = set()
    worker.read(20, seconds=1)
    assert worker.waiting() == []


def test_a_table_that_is_read_slowly_lags_until_its_position_equals_an_end() -> None:
    worker = Worker(when_behind="wait", max_lag_seconds=2)
    worker.tables.follow([IN_0], [IN_0])
    worker.read()
    worker.source.write(("f", 0), *[(b"a", row(number)) for number in range(100)])
    worker.read(10, seconds=10)
    assert worker.waiting() == [IN_0]
    worker.read(60)
    assert worker.waiting() == []


def test_tombstones_remove_rows_also_of_keys_that_have_none() -> None:
    worker = Worker()
    worker.source.write(("f", 0), (b"a", row(1)), (b"a", None), *[(b"absent-%d" % number, None) for number in range(100)])
    worker.tables.follow([IN_0], [IN_0])
    worker.read(60)
    assert (worker.waiting(), worker.ages(b"a"), worker.tables.sizes()["t"][0]) == ([], [-1], 0)


def test_records_without_a_key_and_rows_that_cannot_be_decoded_are_counted_and_the_first_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    worker = Worker()
    worker.tables.prepare(SIGNATURE)
    worker.source.write(("f", 0), (None, row(1)), (b"a", row(1)), (b"b", b"{"), (None, None), (b"\xff", row(2)), (b"c", b"{"))
    worker.tables.follow([IN_0], [IN_0])
    with caplog.at_level(logging.WARNING):
        worker.read()
    assert worker.tables.unreadable() == {"t": {"no-key": 2, "malformed": 2}}
    assert "f[0] at offset 0" in caplog.text
    assert "f[0] at offset 2" in caplog.text
    assert "offset 5" not in caplog.text
    assert worker.ages(b"a", b"b", b"\xff") == [1, -1, 2]


def test_look_ups_are_counted_by_result() -> None:
    worker = Worker()
    worker.source.write(("f", 0), (b"a", row(1)))
    worker.tables.follow([IN_0], [IN_0])
    worker.read()
    worker.tables.columns("t", [AGE], [b"a", b"a", b"b", None], [0, 0, 0, 0])
    assert worker.tables.lookups["t"] == {"row": 2, "no-row": 1, "no-key": 1}


def test_a_recreated_topic_is_read_again_from_its_start() -> None:
    worker = Worker()
    worker.source.write(("f", 0), (b"a", row(1)), (b"b", row(1)))
    worker.tables.follow([IN_0], [IN_0])
    worker.read()
    worker.source.logs = {("f", 0): [(b"a", row(2)), (b"c", row(2)), (b"d", row(2))]}
    worker.source.topics["f"] = Topic("other id", 2)
    worker.read(2, seconds=TOPIC_SECONDS)
    worker.read(1)
    assert worker.waiting() == [IN_0]
    worker.read(10)
    assert worker.waiting() == []
    assert worker.ages(b"a", b"b", b"c", b"d") == [2, -1, 2, 2]
    assert worker.source.renewals == 1


def test_the_end_of_an_empty_topic_does_not_count_for_the_topic_that_replaces_it() -> None:
    worker = Worker()
    worker.tables.follow([IN_0], [IN_0])
    worker.read()
    worker.source.topics["f"] = Topic("other id", 2)
    worker.read(1, seconds=TOPIC_SECONDS)  # asks for the id of the new topic, and for the end of the old one
    worker.source.write(("f", 0), *[(b"a", row(number)) for number in range(20)])
    worker.read(1, seconds=0.05)
    assert worker.waiting() == [IN_0]
    worker.read(20, seconds=END_SECONDS)
    assert (worker.waiting(), worker.ages(b"a")) == ([], [19])


class ObservedSource(FakeSource):
    """A source that calls `on_stop` before partitions are stopped."""

    on_stop: Callable[[], None]

    def stop(self, partitions: Any) -> None:
        """Call `on_stop`, and forget the positions."""
        self.on_stop()
        super().stop(partitions)


def test_all_partitions_of_a_recreated_topic_wait_before_the_first_row_is_dropped() -> None:
    source = ObservedSource({"f": Topic("id", 2)})
    worker = Worker(source, scope="all")
    for number in (0, 1):
        source.write(("f", number), (b"key-%d" % number, row(1)))
    worker.tables.follow([IN_0], [IN_0])
    worker.read()
    restored: list[list[bool]] = []
    source.on_stop = lambda: restored.append([status.restored for status in worker.tables.status()])
    source.topics["f"] = Topic("other id", 2)
    worker.read(10, seconds=2 * TOPIC_SECONDS)
    assert restored == [[False, False]]


def test_a_topic_that_was_deleted_is_behind_until_its_new_rows_are_read() -> None:
    worker = Worker(when_behind="wait", max_lag_seconds=1.0)
    worker.source.write(("f", 0), (b"a", row(1)))
    worker.tables.follow([IN_0], [IN_0])
    worker.read()
    assert worker.waiting() == []
    worker.source.topics["f"] = None
    worker.read(20, seconds=2.0)
    assert worker.waiting() == [IN_0]
    worker.source.topics["f"] = Topic("other id", 2)
    worker.source.logs = {("f", 0): [(b"a", row(2))]}
    for _ in range(40):
        worker.read(1, seconds=0.1)
        assert worker.waiting() == [IN_0] or worker.ages(b"a") == [2]
    assert worker.waiting() == []


def test_a_partition_whose_position_was_deleted_is_read_again_from_its_start() -> None:
    worker = Worker(scope="all")
    worker.source.write(("f", 0), (b"a", row(1)))
    worker.source.write(("f", 1), (b"other", row(1)))
    worker.tables.follow([IN_0], [IN_0])
    worker.read()
    worker.source.write(("f", 0), *[(b"later", row(number)) for number in range(9)])
    worker.source.first["f", 0] = 5
    worker.read()
    assert worker.ages(b"a", b"later", b"other") == [-1, 8, 1]


def test_partitions_that_are_added_to_the_topic_are_read() -> None:
    worker = Worker(scope="all")
    worker.tables.follow([IN_0], [IN_0])
    worker.read()
    worker.source.topics["f"] = Topic("id", 3)
    worker.source.write(("f", 2), (b"a", row(3)))
    worker.read(20, seconds=TOPIC_SECONDS + 1)
    assert worker.ages(b"a") == [3]


def test_events_wait_for_a_topic_that_does_not_exist_yet() -> None:
    worker = Worker(FakeSource({"f": None}))
    worker.tables.follow([IN_0], [IN_0])
    worker.read()
    assert "topic f is not available" in worker.tables.waiting()[IN_0]
    worker.source.topics["f"] = Topic("id", 1)
    worker.read(20, seconds=2 * ABSENT_TOPIC_SECONDS)
    assert worker.waiting() == []


def test_a_table_with_too_many_rows_ends_the_worker_with_the_numbers() -> None:
    worker = Worker(max_rows=3)
    worker.source.write(("f", 0), *((b"%d" % number, row(1)) for number in range(3)))
    worker.tables.follow([IN_0], [IN_0])
    worker.read()
    worker.source.write(("f", 0), (b"3", row(1)))
    with pytest.raises(Fatal, match=r"holds 4 rows; tables\.t\.max_rows is 3") as error:
        worker.read()
    assert "raise tables.t.max_rows" in error.value.hint


def test_a_table_that_takes_too_much_memory_ends_the_worker_with_the_numbers() -> None:
    worker = Worker(max_bytes=1_048_576)
    worker.source.write(("f", 0), (b"a", bytes(2_000_000)))
    worker.tables.follow([IN_0], [IN_0])
    with pytest.raises(Fatal, match=r"tables\.t\.max_bytes is 1,048,576"):
        worker.read()


def test_the_error_that_ended_the_reader_is_raised_in_the_worker() -> None:
    worker = Worker(max_rows=1)
    worker.source.write(("f", 0), (b"a", row(1)), (b"b", row(1)))
    worker.tables.follow([IN_0], [IN_0])
    worker.tables.start()
    worker.tables.reader.join(30)
    assert worker.source.closed
    with pytest.raises(Fatal, match="max_rows"):
        worker.tables.follow([IN_0])


def test_a_version_is_prepared_by_the_reader_thread() -> None:
    worker = Worker()
    worker.source.write(("f", 0), (b"a", row(1)))
    worker.tables.follow([IN_0], [IN_0])
    worker.tables.start()
    try:
        worker.tables.prepare(SIGNATURE)
        assert worker.tables.is_prepared(SIGNATURE)
    finally:
        worker.tables.close()
    assert worker.source.closed


class UnavailableDecoder:
    """A decoder whose schema registry does not answer at the first try."""

    def __init__(self, decoder: Any) -> None:
        self._decoder = decoder
        self.tries = 0

    def decode(self, values: Any) -> Any:
        self.tries += 1
        if self.tries == 1:
            raise DependencyUnavailable("schema-registry", "no answer", retry_seconds=0.001)
        return self._decoder.decode(values)


def test_rows_whose_schema_is_not_known_yet_are_applied_later() -> None:
    worker = Worker()
    create = row_decoder_factory("t", worker.settings)
    worker.tables = worker.create(lambda _: lambda layout: UnavailableDecoder(create(layout)))
    worker.tables.prepare(SIGNATURE)
    worker.source.write(("f", 0), (b"a", row(1)))
    worker.tables.follow([IN_0], [IN_0])
    worker.read()
    assert worker.ages(b"a") == [1]
