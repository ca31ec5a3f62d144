"""The table of a transaction's states, and what an error at a step means."""

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from publisher.session.states import TRANSITIONS, State, Step, Verdict, advance, verdict
from tests.unit.publisher.session.scripted import ERRORS


@given(st.lists(st.sampled_from(Step), max_size=8))
def test_the_table_allows_only_whole_transactions(steps: list[Step]) -> None:
    state = State.IDLE
    for step in steps:
        if (state, step) not in TRANSITIONS:
            with pytest.raises(RuntimeError, match="cannot"):
                advance(state, step)
            return
        state = advance(state, step)
    if steps and steps[-1] is Step.COMMITTED:
        whole = [Step.BEGIN, Step.SEND_OFFSETS, Step.COMMIT, Step.COMMITTED]
        assert whole == steps[-4:] or [whole[0], *whole[2:]] == steps[-3:]


@pytest.mark.parametrize("step", [Step.BEGIN, Step.SEND_OFFSETS])
@pytest.mark.parametrize("error", ERRORS, ids=lambda e: e.name())
def test_only_commits_and_initialisations_are_repeated(step: Step, error: KafkaError) -> None:
    assert verdict(step, error) is not Verdict.REPEAT
