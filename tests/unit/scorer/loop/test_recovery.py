"""How often a scorer recovers, by hand."""

import pytest

from publisher.errors import Aborted, Evicted, Fatal, Fenced, MemberLost
from scorer.loop.recovery import REFUSED_SECONDS, RecoveryLimits


def limits() -> RecoveryLimits:
    return RecoveryLimits("a", "flights")


def test_failures_without_a_commit_are_followed_by_longer_and_longer_pauses() -> None:
    under_test, error = limits(), Aborted("x")
    assert [under_test.judge(error, float(n), 7) for n in range(5)] == [(error, pause) for pause in (0.0, 0.0, 0.5, 1.0, 2.0)]
    assert under_test.judge(error, 6.0, 8) == (error, 0.0)
    assert max(under_test.judge(error, 7.0, 8)[1] for _ in range(1_000)) == 30.0


def test_a_member_that_its_group_refuses_is_patient_and_then_joins_as_another() -> None:
    under_test, error = limits(), Evicted("unknown member")
    for number in range(20):
        assert under_test.judge(error, number * REFUSED_SECONDS / 20, 7) == (error, 0.0)
    lost, pause = under_test.judge(error, REFUSED_SECONDS + 0.1, 7)
    assert isinstance(lost, MemberLost)
    assert pause == 0.0
    assert under_test.judge(error, REFUSED_SECONDS + 0.2, 8) == (error, 0.0)


def test_who_is_fenced_for_a_minute_without_a_commit_has_a_twin() -> None:
    under_test, error = limits(), Fenced("x")
    under_test.judge(Evicted("x"), -3_600.0, 7)  # long ago
    assert under_test.judge(error, 0.0, 7) == (error, 0.0)
    for number in range(20):
        assert under_test.judge(error, number * REFUSED_SECONDS / 20, 7) == (error, 0.0)
    with pytest.raises(Fatal, match="another live process"):
        under_test.judge(error, REFUSED_SECONDS + 0.1, 7)
    assert under_test.judge(error, REFUSED_SECONDS + 0.2, 8) == (error, 0.0)
