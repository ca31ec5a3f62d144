"""When a worker that ended is started again, and when all of them end."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scorer.loop.recovery import FIRST_SECONDS, LONGEST_SECONDS, backoff
from scorer.process.restarts import STEADY_SECONDS, EndAll, Restart, Restarts

NOW = 1_000.0


def restarts(*serving: int) -> Restarts:
    """With these workers serving."""
    policy = Restarts()
    for worker in serving:
        policy.serving(worker, NOW)
    return policy


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4, -9, -11, 70])
def test_until_one_has_served_the_first_end_is_the_end(code: int) -> None:
    assert restarts().ended(0, code, NOW) == EndAll()


@pytest.mark.parametrize("code", [2, 3])
def test_what_the_next_start_would_meet_again_ends_all(code: int) -> None:
    assert restarts(0, 1).ended(1, code, NOW) == EndAll()


@pytest.mark.parametrize("code", [0, 1, 4, -9, -11, 70])
def test_another_end_is_followed_by_a_restart(code: int) -> None:
    assert restarts(0, 1).ended(1, code, NOW) == Restart(NOW + FIRST_SECONDS)


def test_a_worker_that_keeps_ending_waits_longer_and_longer_by_itself() -> None:
    policy, now, waits = restarts(0, 1), NOW, []
    for _ in range(9):
        decision = policy.ended(1, -9, now)
        assert isinstance(decision, Restart)
        waits.append(decision.at - now)
        now = decision.at
    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert policy.ended(0, -9, now) == Restart(now + FIRST_SECONDS)


def test_a_worker_that_has_served_for_a_while_begins_anew() -> None:
    policy = restarts(0)
    for _ in range(3):
        policy.ended(0, -9, NOW)
    policy.serving(0, NOW)
    assert policy.ended(0, -9, NOW + STEADY_SECONDS - 1) == Restart(NOW + STEADY_SECONDS - 1 + backoff(4))
    policy.serving(0, NOW)
    assert policy.ended(0, -9, NOW + STEADY_SECONDS) == Restart(NOW + STEADY_SECONDS + FIRST_SECONDS)


@settings(max_examples=50)
@given(st.integers(1, 10**9))
def test_a_wait_is_never_longer_than_the_longest(failures: int) -> None:
    assert FIRST_SECONDS <= backoff(failures) <= LONGEST_SECONDS
    assert backoff(failures) <= backoff(failures + 1)
