"""Stalls as a reader sees them."""

from tests.campaigns.watch import Stalls


def test_the_longest_pause_of_one_partition_counts() -> None:
    stalls = Stalls()
    for partition, now in [(0, 1.0), (1, 1.1), (0, 1.2), (0, 1.3), (1, 4.1), (0, 4.2)]:
        stalls.arrived(partition, now)
    assert round(stalls.longest, 3) == 3.0


def test_before_the_first_arrival_nothing_stalls() -> None:
    stalls = Stalls()
    stalls.arrived(0, 100.0)
    assert stalls.longest == 0.0
