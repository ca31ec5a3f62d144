"""The folds of Kafka records: scorers, version changes, dead letters and flow."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from confluent_kafka import Message

from scorer.console import records
from scorer.console.records import VersionChange
from scorer.console.state import LETTERS_KEPT, REASONS, ConsoleState, DeadLetterFold, VersionChangeFold
from scorer.console.throughput_fold import STEP_SECONDS, ThroughputFold
from scorer.observability.status_record import PartitionStatus, ScorerStatus
from tests.unit.scorer.console import console_records
from tests.unit.scorer.console.console_records import NOW


def beat(seconds: float, events: int, batches: int, **changed: Any) -> ScorerStatus:
    return console_records.status(
        heartbeat_ms=int((NOW + seconds) * 1_000), counters={"events": events, "batches": batches}, **changed
    )


def test_rate_is_measured_between_two_heartbeats_of_one_run() -> None:
    state = ConsoleState()
    for seconds, events, batches in ((0, 100, 10), (0.2, 110, 11), (5, 600, 20)):
        console_records.add(state, beat(seconds, events, batches), NOW + seconds)
    state_of_scorer = state.scorers.last["m.a"]
    assert (state_of_scorer.rate, state_of_scorer.fill) == (100.0, 50.0)
    console_records.add(state, beat(10, 10, 1, started_ms=2))
    assert state.scorers.last["m.a"].rate == 0.0


def test_old_records_are_of_scorers_that_are_silent() -> None:
    state = ConsoleState()
    console_records.add(state, console_records.status(heartbeat_ms=int((NOW - 60) * 1_000)))
    assert state.scorers.last["m.a"].state(NOW) == "silent"
    state.scorers.fleet.caught_up = True
    console_records.add(state, console_records.status(heartbeat_ms=int((NOW - 60) * 1_000)))
    assert state.scorers.last["m.a"].state(NOW) == "running"  # the record is new, although its clock is wrong
    console_records.add(state, console_records.status(state="stopped"))
    assert state.scorers.last["m.a"].state(NOW) == "stopped"
    assert state.scorers.listed(NOW + 7_200) == []


def test_record_of_another_kind_is_ignored() -> None:
    assert not ConsoleState().scorers.add(b"_channel/prod", b"{}", NOW)
    assert records.decode(b"[]", VersionChange) is None
    assert records.decode(b'{"scorer": 1}', VersionChange) is None
    assert records.decode_score(b"\xff{") is None
    assert records.decode_score(b'{"score": ' + b"[" * 100_000 + b"]" * 100_000 + b"}") is None


def test_the_last_swap_of_each_partition_counts() -> None:
    fold = VersionChangeFold()
    for record in (console_records.swap(0, "1.0.0"), console_records.swap(1, "1.0.0"), console_records.swap(0, "2.0.0", 40, 2)):
        assert records.decode(msgspec.json.encode(record), VersionChange) == record
        fold.add(record)
    assert {partition: record.version for partition, record in fold.last.items()} == {("in", 0): "2.0.0", ("in", 1): "1.0.0"}
    assert [record.cut_over_offset for record in fold.recent] == [40, 0, 0]


def test_dead_letters_count_until_they_were_replayed() -> None:
    fold = DeadLetterFold()
    for offset in range(LETTERS_KEPT + 4):
        fold.add(console_records.letter(offset, "malformed" if offset % 2 else "wrong-type"))
    fold.add(replace(console_records.letter(LETTERS_KEPT + 4), unfit="it came from elsewhere"))
    fold.add_replayed("dead", b"eu/dead/0/1003")
    fold.add_replayed("dead", b"eu/another/0/1002")
    fold.add_replayed("dead", b"nonsense")
    assert len(fold.letters) == LETTERS_KEPT
    assert fold.letters[0].offset == LETTERS_KEPT + 4
    assert fold.by_reason() == {"wrong-type": LETTERS_KEPT // 2 + 2, "malformed": LETTERS_KEPT // 2 + 1}
    assert fold.unfit() == 1
    fold.add_replayed("dead", f"eu/dead/0/{LETTERS_KEPT + 4}".encode())  # from a time when its topic was an input
    assert fold.unfit() == 0
    assert [fold.was_replayed(console_records.letter(offset)) for offset in (1_002, 1_003)] == [False, True]


def test_dead_letters_removed_by_retention_are_not_counted() -> None:
    fold = DeadLetterFold()
    for offset in range(10):
        fold.add(console_records.letter(offset))
    fold.add(replace(console_records.letter(10), unfit="it came from elsewhere"))
    fold.set_low_offsets({0: 4, 1: 100})
    assert (fold.by_reason(), fold.unfit()) == ({"wrong-type": 6}, 1)
    fold.set_low_offsets({0: 11})
    assert (fold.by_reason(), fold.unfit()) == ({}, 0)


def test_dead_letters_of_unlimited_reasons_need_bounded_memory() -> None:
    fold = DeadLetterFold()
    for offset in range(3 * REASONS):
        fold.add(console_records.letter(offset, f"reason {offset}"))
    assert (len(fold.by_reason()), fold.by_reason()["unknown"]) == (REASONS + 1, 2 * REASONS)


def test_dead_letter_shows_its_event() -> None:
    headers = [("ce_id", b"7"), ("bin", b"\xff"), ("dead.reason", b"malformed"), ("dead.at", b"5"), ("dead.source", b"a/b/0/1")]
    letter = records.dead_letter(Message("dead", 2, 9, b"k", b"x" * 5_000, timestamp=(1, 1)), headers)
    assert (letter.reason, letter.at_ms, letter.key, letter.cut, len(letter.value)) == ("malformed", 5, "k", True, 4_000)
    assert letter.headers == (("ce_id", "7"), ("bin", "\\xff"))
    bare = records.dead_letter(Message("dead", 2, 9, timestamp=(1, 1)), [])
    assert (bare.reason, bare.at_ms, bare.value) == ("unknown", 1, "")


def test_the_flow_has_a_point_every_two_seconds() -> None:
    state, flow = ConsoleState(), ThroughputFold()
    for seconds, events, batches in ((0, 0, 0), (5, 500, 50)):
        partitions = [PartitionStatus("in", 0, 3), PartitionStatus("in", 1, 0)]
        console_records.add(state, beat(seconds, events, batches, partitions=partitions), NOW)
    flow.add(console_records.score(0.5), NOW + 0.1, live=True)
    flow.add(console_records.score(0.5, event_ms=1), NOW, live=False)
    assert flow.tick(state.scorers, NOW)
    assert not flow.tick(state.scorers, NOW + STEP_SECONDS / 2)
    point = flow.points[-1]
    assert (point.throughput, point.fill, point.lag_records) == (100.0, 10.0, 3)
    assert (point.scored_p50, point.scored_p99, point.visible_p50) == (20.0, 20.0, 100.0)
    assert point.lag_seconds == pytest.approx(0.02)
    assert point.scoring_ms == pytest.approx(1.1)
    assert flow.tick(state.scorers, NOW + STEP_SECONDS)
    assert flow.points[-1].scored_p50 is None


def test_lag_in_seconds_is_unknown_without_answers() -> None:
    flow = ThroughputFold()
    assert flow.behind([(("in", 0), 0)], NOW) == 0.0
    assert flow.behind([(("in", 0), 4)], NOW) is None
    flow.answered |= {("in", 0): int((NOW - 8) * 1_000), ("in", 1): int((NOW - 2) * 1_000)}
    assert flow.behind([(("in", 0), 4), (("in", 1), 1), (("in", 2), 9)], NOW) == pytest.approx(8.0)
    assert flow.behind([(("in", 0), 0), (("in", 1), 1)], NOW) == pytest.approx(2.0)
