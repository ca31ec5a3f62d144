"""The time at which the next transaction may start."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scorer.worker.transaction_pacing import COMMIT_MULTIPLE, LONGEST_INTERVAL, TransactionPacing
from tests.unit.scorer.worker.simulated_broker import Simulation

TARGET = 0.020
EVENT, TRANSACTION = 20e-6, 0.003  # seconds of the broker's CPU
CARRIED = [
    (rate, times) for rate in (100, 1_000, 5_000, 10_000, 40_000) for times in (1, 2, 5, 10, 20) if rate * times * EVENT < 0.85
]
"""Rates of events, and factors of the usual costs, which a broker can sustain."""


class BackToBack(TransactionPacing):
    """A pacing that never waits."""

    def wait(self, now: float) -> float:  # noqa: ARG002
        return 0.0


def simulation(
    rate: float, times: float, pacing: type[TransactionPacing] = TransactionPacing, jitter: float = 1.0
) -> Simulation:
    return Simulation(pacing(TARGET), rate, times * EVENT, times * TRANSACTION, jitter)


@given(commits=st.lists(st.floats(0, 1), max_size=50), began=st.floats(0, 100), later=st.floats(0, 1))
def test_transactions_are_spaced_and_never_wait_for_long(commits: list[float], began: float, later: float) -> None:
    pacing = TransactionPacing(TARGET)
    for seconds in commits:
        pacing.committed(seconds, seconds)
    pacing.begin(began)
    wait = pacing.wait(began + later)
    assert 0 <= wait <= LONGEST_INTERVAL * (1 + 1e-9)
    if not any(commits):
        assert wait == 0, "the batches have no commits"


@pytest.mark.parametrize(("commit", "interval"), [(0.001, 0.018), (0.004, 0.015), (0.008, 0.024), (0.020, 0.060), (1.0, 0.1)])
def test_the_interval_is_the_target_at_a_quiet_broker_and_longer_at_a_busy_one(commit: float, interval: float) -> None:
    pacing = TransactionPacing(TARGET)
    for _ in range(3):
        pacing.committed(commit, commit + 0.001)
    assert pacing.interval == pytest.approx(interval)


def test_a_scorer_that_is_behind_keeps_the_interval() -> None:
    pacing = TransactionPacing(TARGET)
    for _ in range(3):
        pacing.committed(0.004, 0.005)
    pacing.record_age(3_600.0)
    assert pacing.is_behind
    assert pacing.interval == pytest.approx(0.015)
    pacing.record_age(2 * LONGEST_INTERVAL)  # the age of events if commits are slow
    assert not pacing.is_behind


def test_after_a_full_batch_the_next_transaction_begins_at_once() -> None:
    pacing = TransactionPacing(TARGET)
    pacing.committed(1.0, 1.0)
    pacing.begin(5.0, full=True)
    assert pacing.wait(5.0) == 0.0
    pacing.begin(5.0)
    assert pacing.wait(5.0) > 0.0


def test_the_first_transaction_never_waits() -> None:
    assert TransactionPacing(TARGET).wait(0.0) == 0.0


@pytest.mark.parametrize(("rate", "times"), CARRIED)
def test_latency_stays_at_the_target_or_at_the_limit_of_the_broker(rate: float, times: float) -> None:
    paced, unpaced = simulation(rate, times).run(10), simulation(rate, times, BackToBack).run(10)
    assert paced.share <= unpaced.share
    assert paced.percentile(50) <= max(TARGET, 1.1 * unpaced.percentile(50))
    assert paced.percentile(99) <= max(1.5 * TARGET, 1.4 * unpaced.percentile(99))


def test_a_quiet_broker_has_a_third_of_the_transactions() -> None:
    assert simulation(1_000, 1).run(10).share <= simulation(1_000, 1, BackToBack).run(10).share / 3


@pytest.mark.parametrize(("before", "after"), [(1, 10), (10, 1), (1, 20), (20, 1)])
def test_a_change_of_the_broker_is_followed_within_four_transactions(before: float, after: float) -> None:
    changing, settled = simulation(1_000, before, jitter=0), simulation(1_000, after, jitter=0).run(10)
    changing.run(10)
    changing.event_cost, changing.transaction_cost = settled.event_cost, settled.transaction_cost
    change_index = len(changing.intervals)
    changing.run(2)
    followed = changing.intervals[change_index + 4 :]
    assert followed == pytest.approx([settled.intervals[-1]] * len(followed), rel=0.1)


@pytest.mark.parametrize(("rate", "times"), CARRIED)
def test_intervals_do_not_swing(rate: float, times: float) -> None:
    intervals = simulation(rate, times, jitter=0).run(5).intervals[10:]
    assert max(intervals) <= 1.2 * min(intervals) + 1 / rate


def test_a_slow_commit_counts_only_after_another_slow_commit() -> None:
    pacing, slow, quick = TransactionPacing(TARGET), 0.030, 0.010
    for commit in (quick, quick):
        pacing.committed(commit, TARGET)
    for commit, counts in ((slow, quick), (quick, quick), (slow, slow), (slow, slow), (quick, slow), (quick, quick)):
        pacing.committed(commit, TARGET)
        assert pacing.interval == COMMIT_MULTIPLE * counts
