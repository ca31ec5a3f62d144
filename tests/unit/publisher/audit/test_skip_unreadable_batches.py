"""Ranges of partitions around batches that are not read."""

from hypothesis import given
from hypothesis import strategies as st

from publisher.audit.skip_unreadable_batches import outside, within
from publisher.kafka.reader import Range

OFFSETS = st.integers(0, 30)
RANGES = st.lists(st.tuples(OFFSETS, OFFSETS), max_size=6)


def offsets(ranges: list[Range]) -> list[int]:
    return [offset for start, stop in ranges for offset in range(start, stop)]


@given(st.tuples(OFFSETS, OFFSETS), RANGES)
def test_a_span_is_divided_into_offsets_inside_and_outside_the_ranges(span: Range, ranges: list[Range]) -> None:
    named = {offset for start, stop in ranges for offset in range(start, stop)}
    assert offsets(within(span, ranges)) == [offset for offset in range(*span) if offset in named]
    assert offsets(outside(span, ranges)) == [offset for offset in range(*span) if offset not in named]


def test_a_range_without_end_costs_no_more_than_its_part_of_the_span() -> None:
    assert within((5, 9), [(0, 2**63)]) == [(5, 9)]
    assert outside((5, 9), [(0, 2**63)]) == []
