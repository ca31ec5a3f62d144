"""The soak's plan and its slopes."""

import pytest

from tests.campaigns.faults import soak
from tests.campaigns.faults.soak import Life


def test_no_fault_befalls_the_first_scorer() -> None:
    played = soak.plan(seed=7, seconds=3_600.0)
    verbs = [step for step in played.steps if step.verb == "arm" or step.verb.endswith("-scorer")]
    assert len(verbs) > 20
    assert {step.argument.split()[0] for step in verbs} == {"1"}
    assert max(step.at for step in played.steps) < 3_600.0
    assert played == soak.plan(seed=7, seconds=3_600.0)


def test_what_grows_is_told_as_a_slope() -> None:
    life = Life("r0", [(float(second), 100.0 + second / 360, 40, 12) for second in range(0, 3_600, 5)])
    found = life.slopes()
    assert found is not None
    assert found["rss_mib_per_hour"] == pytest.approx(10.0, abs=0.01)
    assert found["handles_per_hour"] == 0.0


def test_a_short_life_says_nothing() -> None:
    assert Life("r1", [(float(second), 100.0, 40, 12) for second in range(0, 600, 5)]).slopes() is None
