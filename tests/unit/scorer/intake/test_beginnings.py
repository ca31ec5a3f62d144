"""How a partition goes on, from what the group, the topics and the swap records say."""

import pytest

from scorer.intake.beginnings import Way, way

NONE = -1_001


@pytest.mark.parametrize(
    ("offset", "under", "scored", "elsewhere", "expected"),
    [
        (7, "new", {"new"}, True, "position"),
        (7, "", set(), True, "position"),
        (0, "new", {"old"}, True, "position"),
        (7, "old", {"old"}, True, "made again"),
        (7, "old", set(), False, "made again"),
        (NONE, "", {"old"}, False, "made again"),
        (NONE, "", {"old", "new"}, False, "expired"),
        (NONE, "", {"new"}, True, "expired"),
        (NONE, "", {""}, False, "expired"),
        (NONE, "", {"", "old"}, True, "expired"),
        (NONE, "", set(), True, "added"),
        (NONE, "", set(), False, "start"),
    ],
)
def test_the_way_on(offset: int, under: str, scored: set[str], elsewhere: bool, expected: Way) -> None:
    assert way(offset, under, "new", scored, elsewhere) == expected
