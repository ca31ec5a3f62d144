"""The plan of a round: a seed says everything, and what begins also ends."""

import pytest

from tests.campaigns.faults.plan import BROKER_FAULTS, FAULTS, PROXY_FAULTS, plan, possible_faults

ENDS = {
    "freeze-scorer": "thaw-scorer",
    "freeze-broker": "thaw-broker",
    "kill-broker": "start-broker",
    "kill-leader": "start-broker",
    "hold": "cut",
    "fill-disk": "free-disk",
    "registry-away": "registry-back",
    "stop-scorer": "start-scorer",
}


def test_a_seed_says_everything() -> None:
    for brokers in (1, 3):
        possible = possible_faults(brokers)
        assert [plan(1, seed, possible, brokers, 15.0) for seed in range(50)] == [
            plan(1, seed, possible, brokers, 15.0) for seed in range(50)
        ]


def test_every_fault_comes_and_brokers_fail_one_at_a_time() -> None:
    rounds = [plan(1, seed, possible_faults(3), 3, 15.0) for seed in range(300)]
    assert {fault for played in rounds for fault in played.faults} == set(FAULTS)
    assert all(len(BROKER_FAULTS & set(played.faults)) <= 1 for played in rounds)
    assert all(played.proxied == bool(PROXY_FAULTS & set(played.faults)) for played in rounds)
    assert {played.protocol for played in rounds} == {"classic", "consumer"}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_begins_ends(fault: str) -> None:
    for seed in range(50):
        steps = plan(1, seed, (), 3, 15.0, only=fault).steps
        assert steps == tuple(sorted(steps))
        for begin, end in ENDS.items():
            begun = [step.at for step in steps if step.verb == begin]
            assert all(any(step.verb == end and step.at > at for step in steps) for at in begun)


def test_one_broker_has_nobody_to_take_over() -> None:
    assert "move-coordinator" not in possible_faults(1)
    assert "disk-full" not in possible_faults(3, missing=["disk-full"])
