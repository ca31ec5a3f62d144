"""The gate of tables: a partition is read only while its tables are restored and do not lag too much."""

import pytest

from publisher.errors import Fatal
from publisher.kafka.topics import Topic
from publisher.runtime.context import Clock
from scorer.decoding.batch import Batch
from scorer.decoding.table_rows import row_decoder_factory
from scorer.tables.reader import ABSENT_TOPIC_SECONDS, END_SECONDS
from scorer.tables.tables import CHECK_SECONDS, Tables
from scorer.worker.table_gate import TableGate
from tests.unit.scorer.consumer.group import TOPIC, Group
from tests.unit.scorer.minimal import minimal
from tests.unit.scorer.tables.fake_source import FakeSource
from tests.unit.scorer.worker.looped import Looped


class Gated:
    """A gate in front of two partitions, with a table that the test reads step by step."""

    def __init__(self, **table: object) -> None:
        self.now = 100.0
        self.group = Group()
        self.source = FakeSource({"f": Topic("id", 2)})
        settings = minimal(tables={"t": {"topic": "f", **table}})
        self.tables = Tables(
            settings.tables, self.source, lambda name: row_decoder_factory(name, settings), Clock(monotonic=lambda: self.now)
        )
        self.gate = TableGate(self.group.intake, self.tables, Clock(monotonic=lambda: self.now))

    def assign(self, *numbers: int) -> None:
        """Assign partitions as the worker does: the gate pauses them before their claim is complete."""
        self.group.assign(*numbers, claimed=False)
        arrivals = [(TOPIC, number) for number in numbers]
        self.gate.admit(arrivals)
        self.group.intake.resume(arrivals, "unclaimed")

    def paused(self) -> set[int]:
        self.now += CHECK_SECONDS
        self.gate.check()
        return self.group.paused()

    def read(self, steps: int = 20, seconds: float = END_SECONDS) -> None:
        for _ in range(steps):
            self.now += seconds / steps
            self.tables.reader.step()


def test_a_new_partition_is_paused_until_its_table_is_restored() -> None:
    gated = Gated()
    gated.source.write(("f", 1), *[(b"a", b"{}")] * 50)
    gated.assign(0, 1)
    assert gated.paused() == {0, 1}
    gated.read(10)
    assert gated.paused() == {1}
    assert "is being restored from f[1]" in gated.gate.waiting[TOPIC, 1]
    gated.read(60)
    assert gated.paused() == set()
    assert gated.gate.waiting == {}


def test_a_reassigned_partition_is_paused_again() -> None:
    gated = Gated()
    gated.assign(0)
    gated.read()
    assert gated.paused() == set()
    gated.group.revoke(0)
    gated.gate.check()
    gated.assign(0)
    assert gated.paused() == {0}
    gated.read()
    assert gated.paused() == set()


def test_a_partition_that_is_revoked_while_it_waits_is_forgotten() -> None:
    gated = Gated()
    gated.assign(0, 1)
    gated.group.revoke(1)
    assert gated.paused() == {0}
    assert gated.gate.waiting.keys() == {(TOPIC, 0)}


def test_partitions_are_paused_while_the_table_lags_and_read_afterwards() -> None:
    gated = Gated(when_behind="wait", max_lag_seconds=2)
    gated.assign(0)
    gated.read()
    gated.source.is_available = False
    gated.read(seconds=3)
    assert gated.paused() == {0}
    gated.source.is_available = True
    gated.read(seconds=2 * ABSENT_TOPIC_SECONDS)
    assert gated.paused() == set()


def test_another_reason_for_a_pause_remains() -> None:
    gated = Gated()
    gated.assign(0)
    gated.group.intake.pause([(TOPIC, 0)], "revision")
    gated.read()
    assert gated.paused() == {0}


def test_the_error_of_the_tables_ends_the_worker() -> None:
    gated = Gated()
    gated.tables.reader.failure = Fatal("table t holds too many rows")
    with pytest.raises(Fatal, match="too many rows"):
        gated.gate.check()


def test_without_tables_no_partition_waits() -> None:
    group = Group()
    gate = TableGate(group.intake, None)
    group.assign(0)
    gate.admit([(TOPIC, 0)])
    gate.check()
    assert (group.paused(), gate.waiting) == (set(), {})


def test_the_worker_scores_an_event_only_after_the_restore_of_the_table() -> None:
    gated = Gated()
    looped = Looped(tables=gated.tables)
    looped.run(3)
    assert looped.group.paused() == {0}
    assert "table t" in looped.progress.paused[TOPIC, 0]
    gated.read()
    gated.now += CHECK_SECONDS
    looped.run(3)
    assert looped.group.paused() == set()


def batch_of(*numbers: int) -> Batch:
    return Batch([], [], [], [], [], [], [], epochs={(TOPIC, number): 1 for number in numbers})


@pytest.mark.parametrize("scope", ["partition", "all"])
def test_a_batch_that_is_scored_long_after_its_look_up_is_read_again_once(scope: str) -> None:
    gated = Gated(when_behind="wait", max_lag_seconds=5.0, scope=scope)
    gated.assign(0)
    gated.read()
    gated.gate.begin_batch(batch_of(0))
    gated.now += 1.0
    assert not gated.gate.must_repeat_batch()
    gated.gate.begin_batch(batch_of(0))
    gated.now += 6.0
    assert gated.gate.must_repeat_batch()
    gated.gate.begin_batch(batch_of(0))
    gated.now += 6.0
    assert not gated.gate.must_repeat_batch()


def test_an_old_row_does_not_repeat_a_batch_if_tables_do_not_wait() -> None:
    gated = Gated(when_behind="score")
    gated.assign(0)
    gated.read()
    gated.gate.begin_batch(batch_of(0))
    gated.now += 3_600.0
    assert not gated.gate.must_repeat_batch()
