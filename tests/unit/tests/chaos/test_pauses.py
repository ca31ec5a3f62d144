"""The plans of planned operations."""

import pytest

from tests.chaos.pauses.__main__ import OPERATIONS


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_load_begins_before_the_first_step_and_ends_after_the_last(name: str) -> None:
    operation = OPERATIONS[name]
    times = [step.at for step in operation.steps]
    assert min(times) >= 5.0
    assert operation.seconds >= max(times) + 8.0


def test_a_rolling_restart_restarts_each_scorer_once() -> None:
    operation = OPERATIONS["rolling-restart"]
    assert sorted(int(step.argument) for step in operation.steps) == list(range(operation.running))


def test_scaling_starts_and_stops_the_scorers_that_do_not_run_at_the_start() -> None:
    operation = OPERATIONS["scale-1-4-1"]
    numbers = {
        verb: sorted(int(s.argument) for s in operation.steps if s.verb == verb) for verb in ("start-scorer", "stop-scorer")
    }
    assert numbers["start-scorer"] == numbers["stop-scorer"] == list(range(operation.running, operation.most))
