"""Positions between a partition and its copy, and the time up to which a copy is complete, without a broker."""

from bisect import bisect_left

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from publisher.errors import Fatal
from publisher.failover import plan as failover
from publisher.failover.offset_translation import CopiedRecord, ReadCopy, in_copy, in_source
from publisher.relay.source_progress import Completeness, EndSnapshot
from tests.unit.publisher.relay.test_parts import settings_for

EVENTS = ("events", 0)


def reads(copies: list[CopiedRecord]) -> ReadCopy:
    """Read as Kafka does: the first record at or after an offset."""
    offsets = [copy.offset for copy in copies]

    def read(offset: int) -> CopiedRecord | None:
        at = bisect_left(offsets, offset)
        return copies[at] if at < len(copies) else None

    return read


gaps = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), max_size=60)


def copy_with_gaps(steps: list[tuple[int, int]]) -> list[CopiedRecord]:
    """Return a copy whose offsets and origins rise by these steps: markers and records that are not selected leave gaps."""
    offset = origin = -1
    copies = []
    for offset_step, origin_step in steps:
        offset, origin = offset + offset_step, origin + origin_step
        copies.append(CopiedRecord(offset, origin))
    return copies


@settings(max_examples=150, deadline=None)
@given(gaps, st.integers(0, 150), st.integers(0, 5))
def test_a_position_divides_the_copy_at_the_same_record_as_the_source(
    steps: list[tuple[int, int]], position: int, tail: int
) -> None:
    copies = copy_with_gaps(steps)
    high = (copies[-1].offset + 1 if copies else 0) + tail
    translated = in_copy(reads(copies), 0, high, position)
    assert 0 <= translated <= high
    for copy in copies:
        assert (copy.offset < translated) == (copy.origin < position)


@settings(max_examples=150, deadline=None)
@given(gaps, st.integers(0, 200))
def test_a_position_in_the_copy_divides_the_source_at_the_same_record(steps: list[tuple[int, int]], position: int) -> None:
    copies = copy_with_gaps(steps)
    translated = in_source(reads(copies), 0, position)
    assert (translated is None) == (not copies)
    for copy in copies:
        assert translated is not None
        assert (copy.origin < translated) == (copy.offset < position)


def test_a_position_is_searched_in_the_retained_records() -> None:
    copies = copy_with_gaps([(1, 1)] * 100)
    assert in_copy(reads(copies), 40, 100, 10) == 40
    assert in_copy(reads(copies), 40, 30, 10) == 40
    assert in_source(reads(copies[:0]), 0, 5) is None
    assert in_source(reads(copies), 100, 100) is None


def test_a_time_is_complete_when_all_its_records_are_copied() -> None:
    completeness = Completeness()
    assert completeness.update({}) == 0
    completeness.add(EndSnapshot(1_000, {EVENTS: 10, ("events", 1): 5}))
    completeness.add(EndSnapshot(2_000, {EVENTS: 20, ("events", 1): 5}))
    assert completeness.update({EVENTS: 9, ("events", 1): 5}) == 0
    assert completeness.update({EVENTS: 12, ("events", 1): 5}) == 1_000
    assert completeness.update({EVENTS: 20, ("events", 1): 9}) == 2_000
    completeness.add(EndSnapshot(3_000, {EVENTS: 30, ("events", 1): 5, ("events", 2): 1}))
    assert completeness.update({EVENTS: 30, ("events", 1): 9}) == 2_000, "a partition that is not copied yet"
    assert completeness.update({EVENTS: 30, ("events", 1): 9, ("events", 2): 1}) == 3_000


def test_only_a_relay_that_follows_groups_moves_them_and_only_to_its_destination() -> None:
    with pytest.raises(Fatal, match=r"source\.groups names no consumer group"):
        failover.plan(settings_for("events"), "us", 0)
    with pytest.raises(Fatal, match="this relay copies from eu to us") as error:
        failover.plan(settings_for("events", target="{region}.{topic}", groups=["scorers"]), "mars", 0)
    assert error.value.exit_code == 2
