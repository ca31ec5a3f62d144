"""How often a scorer may recover before it ends."""

import pytest

from publisher.errors import Aborted, Evicted, Fatal, Fenced
from scorer.recovery import REFUSED_SECONDS, RecoveryLimits


def limits() -> RecoveryLimits:
    return RecoveryLimits("a", "flights")


def test_three_failures_without_a_commit_are_one_too_many() -> None:
    under_test = limits()
    under_test.allow(Aborted("x"), 0.0, 7)
    under_test.allow(Aborted("x"), 1.0, 7)
    with pytest.raises(Fatal, match="three recoveries"):
        under_test.allow(Aborted("x"), 2.0, 7)


def test_a_commit_in_between_makes_them_forgotten() -> None:
    under_test = limits()
    for number in range(10):
        under_test.allow(Aborted("x"), float(number), commits=number)


@pytest.mark.parametrize(("error", "said"), [(Evicted("x"), "refused this member"), (Fenced("x"), "another live process")])
def test_a_member_that_is_refused_is_patient_and_not_for_ever(error: Aborted, said: str) -> None:
    under_test = limits()
    for number in range(20):
        under_test.allow(error, number * REFUSED_SECONDS / 20, 7)
    with pytest.raises(Fatal, match=said):
        under_test.allow(error, REFUSED_SECONDS + 0.1, 7)
    under_test.allow(error, REFUSED_SECONDS + 0.2, 8)
