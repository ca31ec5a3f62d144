"""How far a move has come, decided from what scorers told."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from model_registry.channels.history import ChannelMove
from scorer.observability import status_record as records
from scorer.observability.status_record import STALE_SECONDS, PartitionStatus, ScorerStatus
from scorer.rollout import fleet_status
from scorer.rollout.fleet_status import FLIPPED, REFUSED, WAITING, Fleet
from tests.unit.scorer.console.console_records import NOW, status

MOVE = ChannelMove("prod", 7, "op", "", datetime(2013, 9, 1, tzinfo=UTC), "sha256:old", "1.0.0", "sha256:new", "2.0.0")


def told(name: str, revision: int, partitions: tuple[int, ...] = (), **changed: Any) -> ScorerStatus:
    version = "2.0.0" if revision >= 7 else "1.0.0"
    facts = {"aspired_revision": 0, "partitions": [PartitionStatus("in", p, 0) for p in partitions], **changed}
    return status(name, version, revision, **facts)


def fleet(*records: ScorerStatus, heard: float = NOW) -> Fleet:
    made = Fleet(caught_up=True)
    for record in records:
        assert made.update(record.scorer.encode(), msgspec.json.encode(record), heard)
    return made


def verdict(*records: ScorerStatus, wanted: tuple[int, ...] = (), heard: float = NOW) -> fleet_status.MoveProgress:
    return fleet_status.move_progress(MOVE, fleet(*records, heard=heard), {("in", p) for p in wanted}, NOW)


def test_all_live_scorers_and_all_partitions_have_to_flip() -> None:
    assert verdict(told("a", 7, (0, 1)), told("b", 8, (2,)), wanted=(0, 1, 2)).outcome == FLIPPED
    assert verdict(told("a", 7, (0, 1)), told("b", 6, (2,)), wanted=(0, 1, 2)).outcome == WAITING
    gap = verdict(told("a", 7, (0, 1)), told("b", 7), wanted=(0, 1, 2))
    assert (gap.outcome, gap.missing) == (WAITING, (("in", 2),))
    assert verdict().outcome == WAITING


def test_who_is_gone_or_follows_another_tag_is_not_waited_for() -> None:
    assert verdict(told("a", 7), told("b", 6, state="stopped"), told("c", 6, tag="canary")).outcome == FLIPPED
    assert verdict(told("a", 7), heard=NOW - STALE_SECONDS).outcome == WAITING
    assert verdict(told("a", 7, (0,)), told("shadow.a", 6, (0, 1), shadow=True), wanted=(0,)).outcome == FLIPPED
    assert verdict(told("shadow.a", 7, (0,), shadow=True)).outcome == WAITING, "it answers nobody"
    both = fleet(told("b", 7, (1,)))
    both.last |= fleet(told("a", 6, (0,)), heard=NOW - STALE_SECONDS).last
    assert fleet_status.live_partitions(MOVE, both, NOW) == {("in", 1)}
    assert fleet_status.move_progress(MOVE, both, {("in", 1)}, NOW).outcome == FLIPPED


def test_a_refusal_counts_for_the_move_that_it_answers_and_ends_the_wait_when_all_have_decided() -> None:
    why = {"2.0.0": "golden example 1"}
    assert verdict(told("a", 6, refused=why, aspired_revision=6)).outcome == WAITING
    both = told("a", 6, refused=why, aspired_revision=7), told("b", 6, aspired_revision=7)
    assert verdict(*both).outcome == WAITING
    ended = verdict(both[0], told("b", 7, aspired_revision=7))
    assert ended.outcome == REFUSED
    assert [(s.scorer, s.outcome, s.reason) for s in ended.scorers] == [("a", REFUSED, "golden example 1"), ("b", FLIPPED, "")]


@pytest.mark.parametrize("key", [None, b"", records.notice_key("prod").encode()])
def test_what_is_no_record_of_a_scorer_is_passed_over(key: bytes | None) -> None:
    assert records.read(key, msgspec.json.encode(told("a", 7))) is None
    assert records.read(b"a", None) is None


@given(st.binary(max_size=200))
def test_whatever_stands_in_the_topic_is_a_record_or_nothing(value: bytes) -> None:
    assert records.read(b"a", value) is None


def test_invented_scorers_are_forgotten_before_one_that_goes_on_telling() -> None:
    made = Fleet(caught_up=True)
    real = told("a", 7, (0,))
    for number in range(fleet_status.SCORERS + 500):
        made.update(b"x%d" % number, msgspec.json.encode(told(f"x{number}", 6)), NOW)
        if number % 1_000 == 0:
            made.update(b"a", msgspec.json.encode(real), NOW)
    assert len(made.last) == fleet_status.SCORERS
    assert made.last["a"][0] == real


def test_large_records_are_bounded_together() -> None:
    made = Fleet(caught_up=True)
    large = {"x": "y" * (fleet_status.RECORD_BYTES // 4)}
    for number in range(10):
        made.update(b"x%d" % number, msgspec.json.encode(told(f"x{number}", 6, refused=large)), NOW)
    made.update(b"x9", msgspec.json.encode(told("x9", 6)), NOW)
    assert list(made.last) == ["x7", "x8", "x9"]


def test_a_move_wants_no_more_partitions_than_a_topic_can_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_status, "WANTED_PARTITIONS", 3)
    wanted = {("in", 0)}
    fleet_status.add_partitions(wanted, [("in", number) for number in range(9)])
    assert wanted == {("in", 0), ("in", 1), ("in", 2)}


@pytest.mark.parametrize(
    "changed",
    [
        {"scorer": "b"},
        {"heartbeat_ms": -1},
        {"started_ms": 2**63},
        {"cost": (1e300, 0.0)},
        {"counters": {"events": -(2**62)}},
        {"partitions": [PartitionStatus("in", -1, 0)]},
        {"partitions": [PartitionStatus("in", 0, 2**62)]},
    ],
)
def test_a_record_that_no_scorer_writes_is_passed_over(changed: dict[str, Any]) -> None:
    made = Fleet(caught_up=True)
    assert made.update(b"a", msgspec.json.encode(structs.replace(told("a", 7), **changed)), NOW) is None
    assert made.update(b"a", msgspec.json.encode(told("a", 7)), NOW) is not None
