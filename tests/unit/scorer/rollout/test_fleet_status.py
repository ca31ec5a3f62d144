"""The progress of a move, from the status records of scorers."""

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


def status_of(name: str, revision: int, partitions: tuple[int, ...] = (), **changed: Any) -> ScorerStatus:
    version = "2.0.0" if revision >= 7 else "1.0.0"
    facts = {"aspired_revision": 0, "partitions": [PartitionStatus("in", p, 0) for p in partitions], **changed}
    return status(name, version, revision, **facts)


def fleet(*records: ScorerStatus, received_at: float = NOW) -> Fleet:
    received = Fleet(caught_up=True)
    for record in records:
        assert received.update(record.scorer.encode(), msgspec.json.encode(record), received_at)
    return received


def verdict(*records: ScorerStatus, partitions: tuple[int, ...] = (), received_at: float = NOW) -> fleet_status.MoveProgress:
    return fleet_status.move_progress(MOVE, fleet(*records, received_at=received_at), {("in", p) for p in partitions}, NOW)


def test_all_live_scorers_and_all_partitions_have_to_flip() -> None:
    assert verdict(status_of("a", 7, (0, 1)), status_of("b", 8, (2,)), partitions=(0, 1, 2)).outcome == FLIPPED
    assert verdict(status_of("a", 7, (0, 1)), status_of("b", 6, (2,)), partitions=(0, 1, 2)).outcome == WAITING
    progress = verdict(status_of("a", 7, (0, 1)), status_of("b", 7), partitions=(0, 1, 2))
    assert (progress.outcome, progress.missing) == (WAITING, (("in", 2),))
    assert verdict().outcome == WAITING


def test_scorers_that_stopped_or_follow_another_tag_are_ignored() -> None:
    assert verdict(status_of("a", 7), status_of("b", 6, state="stopped"), status_of("c", 6, tag="canary")).outcome == FLIPPED
    assert verdict(status_of("a", 7), received_at=NOW - STALE_SECONDS).outcome == WAITING
    assert verdict(status_of("a", 7, (0,)), status_of("shadow.a", 6, (0, 1), shadow=True), partitions=(0,)).outcome == FLIPPED
    assert verdict(status_of("shadow.a", 7, (0,), shadow=True)).outcome == WAITING, "a shadow does not count"
    live_and_stale = fleet(status_of("b", 7, (1,)))
    live_and_stale.last |= fleet(status_of("a", 6, (0,)), received_at=NOW - STALE_SECONDS).last
    assert fleet_status.live_partitions(MOVE, live_and_stale, NOW) == {("in", 1)}
    assert fleet_status.move_progress(MOVE, live_and_stale, {("in", 1)}, NOW).outcome == FLIPPED


def test_a_refusal_counts_for_the_move_that_it_answers_and_ends_the_wait_when_all_have_decided() -> None:
    refusals = {"2.0.0": "golden example 1"}
    assert verdict(status_of("a", 6, refused=refusals, aspired_revision=6)).outcome == WAITING
    statuses = status_of("a", 6, refused=refusals, aspired_revision=7), status_of("b", 6, aspired_revision=7)
    assert verdict(*statuses).outcome == WAITING
    progress = verdict(statuses[0], status_of("b", 7, aspired_revision=7))
    assert progress.outcome == REFUSED
    assert [(scorer.scorer, scorer.outcome, scorer.reason) for scorer in progress.scorers] == [
        ("a", REFUSED, "golden example 1"),
        ("b", FLIPPED, ""),
    ]


@pytest.mark.parametrize("key", [None, b"", records.notice_key("prod").encode()])
def test_a_record_that_is_not_of_a_scorer_is_ignored(key: bytes | None) -> None:
    assert records.read(key, msgspec.json.encode(status_of("a", 7))) is None
    assert records.read(b"a", None) is None


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_no_record(value: bytes) -> None:
    assert records.read(b"a", value) is None


def test_invented_scorers_are_removed_before_a_scorer_that_keeps_reporting() -> None:
    received = Fleet(caught_up=True)
    real = status_of("a", 7, (0,))
    for number in range(fleet_status.SCORERS + 500):
        received.update(b"x%d" % number, msgspec.json.encode(status_of(f"x{number}", 6)), NOW)
        if number % 1_000 == 0:
            received.update(b"a", msgspec.json.encode(real), NOW)
    assert len(received.last) == fleet_status.SCORERS
    assert received.last["a"][0] == real


def test_large_records_are_bounded_together() -> None:
    received = Fleet(caught_up=True)
    large = {"x": "y" * (fleet_status.RECORD_BYTES // 4)}
    for number in range(10):
        received.update(b"x%d" % number, msgspec.json.encode(status_of(f"x{number}", 6, refused=large)), NOW)
    received.update(b"x9", msgspec.json.encode(status_of("x9", 6)), NOW)
    assert list(received.last) == ["x7", "x8", "x9"]


def test_a_move_wants_no_more_partitions_than_a_topic_can_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_status, "WANTED_PARTITIONS", 3)
    partitions = {("in", 0)}
    fleet_status.add_partitions(partitions, [("in", number) for number in range(9)])
    assert partitions == {("in", 0), ("in", 1), ("in", 2)}


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
def test_a_record_with_impossible_values_is_ignored(changed: dict[str, Any]) -> None:
    received = Fleet(caught_up=True)
    assert received.update(b"a", msgspec.json.encode(structs.replace(status_of("a", 7), **changed)), NOW) is None
    assert received.update(b"a", msgspec.json.encode(status_of("a", 7)), NOW) is not None
