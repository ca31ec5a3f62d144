"""The plan of a round of the relay's campaign: a seed says everything, what begins also ends, and every step is crashed at."""

import pytest

from tests.campaigns.relay.plan import EXCLUSIVE, FAULTS, POINTS, plan

ENDS = {
    "freeze-relay": "thaw-relay",
    "freeze-broker": "thaw-broker",
    "kill-broker": "start-broker",
    "hold": "cut",
}


def test_a_seed_says_everything_and_every_fault_and_point_comes() -> None:
    rounds = [plan(1, seed, 5.0) for seed in range(300)]
    assert rounds == [plan(1, seed, 5.0) for seed in range(300)]
    assert {fault for played in rounds for fault in played.faults} == set(FAULTS)
    assert {step.argument for played in rounds for step in played.steps if step.verb == "arm"} == set(POINTS)
    assert all(len(group & set(played.faults)) <= 1 for played in rounds for group in EXCLUSIVE)
    assert {played.transactional for played in rounds} == {True, False}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_begins_ends(fault: str) -> None:
    for seed in range(50):
        steps = plan(1, seed, 5.0, only=fault).steps
        assert steps == tuple(sorted(steps))
        for begin, end in ENDS.items():
            begun = [step for step in steps if step.verb == begin]
            assert all(any(s.verb == end and s.at > step.at and s.argument == step.argument for s in steps) for step in begun)
        slowed = [step for step in steps if step.verb == "slow"]
        assert not slowed or slowed[-1].argument.endswith(" 0")
