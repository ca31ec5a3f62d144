"""How often a scorer may recover before it ends."""

import pytest

from publisher.errors import Aborted, Evicted, Fatal, Fenced
from scorer.recovery import EVICTED_SECONDS, RecoveryLimits


def limits() -> RecoveryLimits:
    return RecoveryLimits("a", "flights")


@pytest.mark.parametrize(("error", "said"), [(Aborted("x"), "three recoveries"), (Fenced("x"), "another live process")])
def test_three_failures_without_a_commit_are_one_too_many(error: Aborted, said: str) -> None:
    under_test = limits()
    under_test.allow(error, 0.0, 7)
    under_test.allow(error, 1.0, 7)
    with pytest.raises(Fatal, match=said):
        under_test.allow(error, 2.0, 7)


def test_a_commit_in_between_makes_them_forgotten() -> None:
    under_test = limits()
    for number in range(10):
        under_test.allow(Aborted("x"), float(number), commits=number)


def test_a_member_that_its_group_refuses_is_patient_and_not_for_ever() -> None:
    under_test = limits()
    for number in range(20):
        under_test.allow(Evicted("unknown member"), number * EVICTED_SECONDS / 20, 7)
    with pytest.raises(Fatal, match="refused this member"):
        under_test.allow(Evicted("unknown member"), EVICTED_SECONDS + 0.1, 7)
    under_test.allow(Evicted("unknown member"), EVICTED_SECONDS + 0.2, 8)
