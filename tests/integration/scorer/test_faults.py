"""The short form of the fault campaign: a point of the crash matrix and a seeded round."""

import contextlib
from collections.abc import Iterator

import pytest

from tests.campaigns.faults.matrix import crash_at
from tests.campaigns.faults.plan import plan
from tests.campaigns.faults.rounds import play
from tests.campaigns.faults.stage import Ground

RATE = 2_000.0
POINT = "before:send_offsets_to_transaction"


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    """One broker of its own, behind a proxy, and a registry with versions."""
    with contextlib.closing(Ground(1)) as ready:
        yield ready.start()


def test_a_crash_at_a_step_of_a_transaction_costs_nothing(ground: Ground) -> None:
    result = play(ground, crash_at(POINT, 1, 1), RATE)
    assert result.clean, result
    assert result.exits["signal 9"] == 1


def test_a_seeded_round_is_clean(ground: Ground) -> None:
    result = play(ground, plan(1, 2, (), 1, 5.0, only="kill-scorer"), RATE)
    assert result.clean, result
    assert result.events > 0
