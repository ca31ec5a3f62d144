"""The pauses between recoveries of a scorer."""

import pytest

from publisher.errors import Aborted, Evicted, Fatal, Fenced, MemberLost
from scorer.worker.retry_backoff import REFUSED_SECONDS, RetryBackoff


class FailingLoop:
    """The failures of a loop, and the pauses before it recovers."""

    def __init__(self) -> None:
        self._recoveries = RetryBackoff("a", "flights")

    def record_failure(self, error: Aborted, now: float, commits: int = 7) -> tuple[Aborted, float]:
        """Return the failure to recover from, and the pause before the recovery."""
        pending = self._recoveries.failed(error, now, commits)
        assert self._recoveries.pending is pending
        pauses = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
        pause = next(pause for pause in pauses if self._recoveries.due(now + pause))
        self._recoveries.clear_pending()
        return pending, pause


def test_failures_without_a_commit_are_followed_by_longer_and_longer_pauses() -> None:
    failing, error = FailingLoop(), Aborted("x")
    assert [failing.record_failure(error, float(n)) for n in range(5)] == [
        (error, pause) for pause in (0.0, 0.0, 0.5, 1.0, 2.0)
    ]
    assert failing.record_failure(error, 6.0, 8) == (error, 0.0)
    assert max(failing.record_failure(error, 7.0, 8)[1] for _ in range(1_000)) == 30.0


def test_a_member_that_its_group_refuses_retries_and_then_rejoins() -> None:
    failing, error = FailingLoop(), Evicted("unknown member")
    for number in range(20):
        assert failing.record_failure(error, number * REFUSED_SECONDS / 20) == (error, 0.0)
    replacement, pause = failing.record_failure(error, REFUSED_SECONDS + 0.1)
    assert isinstance(replacement, MemberLost)
    assert pause == 0.0
    assert failing.record_failure(error, REFUSED_SECONDS + 0.2, 8) == (error, 0.0)


def test_a_process_that_stays_fenced_without_a_commit_reports_another_live_process() -> None:
    failing, error = FailingLoop(), Fenced("x")
    failing.record_failure(Evicted("x"), -3_600.0)  # long ago
    assert failing.record_failure(error, 0.0) == (error, 0.0)
    for number in range(20):
        assert failing.record_failure(error, number * REFUSED_SECONDS / 20) == (error, 0.0)
    with pytest.raises(Fatal, match="another live process"):
        failing.record_failure(error, REFUSED_SECONDS + 0.1)
    assert failing.record_failure(error, REFUSED_SECONDS + 0.2, 8) == (error, 0.0)
