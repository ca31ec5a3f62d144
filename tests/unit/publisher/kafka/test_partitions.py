"""The names of partitions in messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.kafka.partitions import Partition, in_ranges


@pytest.mark.parametrize(
    ("partitions", "names"),
    [
        ([], ""),
        ([("b", 3)], "b[3]"),
        ([("b", number) for number in range(1_000)], "b[0-999]"),
        ([("b", 7), ("b", 2), ("a", 5), ("b", 1), ("b", 2), ("b", 4)], "a[5], b[1-2,4,7]"),
    ],
)
def test_consecutive_partitions_are_a_range(partitions: list[Partition], names: str) -> None:
    assert in_ranges(partitions) == names


@given(numbers=st.sets(st.integers(0, 60)))
def test_ranges_name_each_partition_once(numbers: set[int]) -> None:
    text = in_ranges(("t", number) for number in numbers)
    named: list[int] = []
    for run in text[2:-1].split(",") if text else ():
        first, _, last = run.partition("-")
        named += range(int(first), int(last or first) + 1)
    assert named == sorted(numbers)
