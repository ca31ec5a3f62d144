"""When the next transaction may begin."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scorer.loop.pacing import MAXIMUM_INTERVAL, MINIMUM_INTERVAL, Pacing


@given(commits=st.lists(st.floats(0, 1), max_size=50), began=st.floats(0, 100), later=st.floats(0, 1))
def test_transactions_keep_their_distance_and_never_wait_for_long(commits: list[float], began: float, later: float) -> None:
    pacing = Pacing()
    for seconds in commits:
        pacing.committed(seconds)
    pacing.begin(began)
    wait = pacing.wait(began + later)
    assert 0 <= wait <= MAXIMUM_INTERVAL * (1 + 1e-9)
    if pacing.usual_commit:
        assert wait + later >= MINIMUM_INTERVAL * (1 - 1e-9)
    else:
        assert wait == 0, "batches have no commits of their own"


def test_a_slow_broker_gets_fewer_transactions() -> None:
    waits = {}
    for seconds in (0.001, 0.004, 0.008, 0.5):
        pacing = Pacing()
        for _ in range(100):
            pacing.committed(seconds)
        pacing.begin(0.0)
        waits[seconds] = pacing.wait(0.0)
    expected = {0.001: MINIMUM_INTERVAL, 0.004: 0.008, 0.008: 0.016 * 8 / 5, 0.5: MAXIMUM_INTERVAL}
    assert waits == pytest.approx(expected, rel=0.01)


def test_after_a_full_batch_the_next_transaction_begins_at_once() -> None:
    pacing = Pacing()
    pacing.committed(1.0)
    pacing.begin(5.0, full=True)
    assert pacing.wait(5.0) == 0.0
    pacing.begin(5.0)
    assert pacing.wait(5.0) > 0.0


def test_the_first_transaction_never_waits() -> None:
    assert Pacing().wait(0.0) == 0.0
