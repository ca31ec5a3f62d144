"""When an ended worker is restarted, and when all workers end."""

import pytest

from scorer.service.restart_policy import STEADY_SECONDS, RestartPolicy
from scorer.worker.retry_backoff import FIRST_SECONDS

NOW = 1_000.0


def restarts(*serving: int) -> RestartPolicy:
    """Return the policy after the start of these workers."""
    policy = RestartPolicy()
    for worker in serving:
        policy.serving(worker, NOW)
    return policy


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4, -9, -11, 70])
def test_all_workers_end_if_none_has_served_or_a_restart_would_fail_again(code: int) -> None:
    assert restarts().ended(0, code, NOW) is None
    assert restarts(0).ended(0, code, NOW) == (None if code in (2, 3) else NOW + FIRST_SECONDS)


@pytest.mark.parametrize("code", [2, 3])
def test_no_worker_ends_because_another_is_refused(code: int) -> None:
    policy = restarts(0, 1)
    assert policy.ended(1, code, NOW) == NOW + FIRST_SECONDS
    assert policy.ended(1, code, NOW) == NOW + 2 * FIRST_SECONDS
    assert policy.ended(0, code, NOW) is None, "no worker serves"


def test_the_restart_delay_of_a_worker_grows_independently_of_others() -> None:
    policy, now, delays = restarts(0, 1), NOW, []
    for _ in range(9):
        restart_at = policy.ended(1, -9, now)
        assert restart_at is not None
        delays.append(restart_at - now)
        now = restart_at
    assert delays == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert policy.ended(0, -9, now) == now + FIRST_SECONDS


def test_a_worker_that_has_served_for_a_while_restarts_with_the_first_delay() -> None:
    policy = restarts(0)
    for _ in range(3):
        policy.ended(0, -9, NOW)
    policy.serving(0, NOW)
    assert policy.ended(0, -9, NOW + STEADY_SECONDS - 1) == NOW + STEADY_SECONDS - 1 + 4.0
    policy.serving(0, NOW)
    assert policy.ended(0, -9, NOW + STEADY_SECONDS) == NOW + STEADY_SECONDS + FIRST_SECONDS
