"""Positions between a partition and its copy, and what is known to be complete: pure, no broker."""

from bisect import bisect_left

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from publisher.errors import Fatal
from publisher.failover import plan as failover
from publisher.failover.offset_translation import Read, Seen, in_copy, in_source
from publisher.relay.source_progress import Completeness, Look
from tests.unit.publisher.relay.test_parts import settings_for

EVENTS = ("events", 0)


def reads(copies: list[Seen]) -> Read:
    """As Kafka answers: the first record at an offset or behind it."""
    offsets = [copy.offset for copy in copies]

    def read(offset: int) -> Seen | None:
        at = bisect_left(offsets, offset)
        return copies[at] if at < len(copies) else None

    return read


gaps = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), max_size=60)


def copy_with_gaps(steps: list[tuple[int, int]]) -> list[Seen]:
    """A copy in which offsets and origins rise by these steps: markers and what was not selected leave gaps."""
    offset = origin = -1
    copies = []
    for one, two in steps:
        offset, origin = offset + one, origin + two
        copies.append(Seen(offset, origin))
    return copies


@settings(max_examples=150, deadline=None)
@given(gaps, st.integers(0, 150), st.integers(0, 5))
def test_a_position_parts_the_copy_where_it_parts_the_source(steps: list[tuple[int, int]], position: int, tail: int) -> None:
    copies = copy_with_gaps(steps)
    high = (copies[-1].offset + 1 if copies else 0) + tail
    found = in_copy(reads(copies), 0, high, position)
    assert 0 <= found <= high
    for copy in copies:
        assert (copy.offset < found) == (copy.origin < position)


@settings(max_examples=150, deadline=None)
@given(gaps, st.integers(0, 200))
def test_a_position_in_the_copy_parts_the_source(steps: list[tuple[int, int]], position: int) -> None:
    copies = copy_with_gaps(steps)
    found = in_source(reads(copies), 0, position)
    assert (found is None) == (not copies)
    for copy in copies:
        assert found is not None
        assert (copy.origin < found) == (copy.offset < position)


def test_a_position_is_looked_for_within_what_is_kept() -> None:
    copies = copy_with_gaps([(1, 1)] * 100)
    assert in_copy(reads(copies), 40, 100, 10) == 40
    assert in_copy(reads(copies), 40, 30, 10) == 40
    assert in_source(reads(copies[:0]), 0, 5) is None
    assert in_source(reads(copies), 100, 100) is None


def test_a_moment_is_complete_when_everything_of_it_is_copied() -> None:
    known = Completeness()
    assert known.reached({}) == 0
    known.add(Look(1_000, {EVENTS: 10, ("events", 1): 5}))
    known.add(Look(2_000, {EVENTS: 20, ("events", 1): 5}))
    assert known.reached({EVENTS: 9, ("events", 1): 5}) == 0
    assert known.reached({EVENTS: 12, ("events", 1): 5}) == 1_000
    assert known.reached({EVENTS: 20, ("events", 1): 9}) == 2_000
    known.add(Look(3_000, {EVENTS: 30, ("events", 1): 5, ("events", 2): 1}))
    assert known.reached({EVENTS: 30, ("events", 1): 9}) == 2_000, "a partition that is not copied yet"
    assert known.reached({EVENTS: 30, ("events", 1): 9, ("events", 2): 1}) == 3_000


def test_only_a_relay_that_follows_groups_moves_them_and_only_to_its_destination() -> None:
    with pytest.raises(Fatal, match=r"source\.groups names no consumer group"):
        failover.plan(settings_for("events"), "us", 0)
    with pytest.raises(Fatal, match="this relay copies from eu to us") as error:
        failover.plan(settings_for("events", target="{region}.{topic}", groups=["scorers"]), "mars", 0)
    assert error.value.exit_code == 2
