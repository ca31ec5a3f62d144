"""What a batch stops at, by what the client has to give."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scorer.events.batch import End
from scorer.intake.pull import BATCH_BYTES, chunk
from tests.unit.scorer.intake.group import Group, event


@pytest.mark.parametrize(
    ("there", "asked", "size", "end", "taken"),
    [
        (3, 10, 2, "empty", 3),
        (10, 10, 2, "events", 10),
        (1, 1, 2, "events", 1),
        (8, 10, BATCH_BYTES // 4, "bytes", 4),
        (1, 10, BATCH_BYTES, "bytes", 1),
    ],
)
def test_a_batch_says_what_it_stopped_at(there: int, asked: int, size: int, end: End, taken: int) -> None:
    group = Group()
    group.assign(0)
    group.waiting += [event(offset, size=size) for offset in range(there)]
    batch = group.intake.take(1.0, lambda _: asked)
    assert batch is not None
    assert (batch.end, len(batch)) == (end, taken)


@given(sizes=st.lists(st.integers(0, 3 * BATCH_BYTES), min_size=1, max_size=200), most=st.integers(1, 200))
def test_a_batch_holds_no_more_bytes_than_expected_and_at_least_one_event(sizes: list[int], most: int) -> None:
    """Where the largest event is known, the limit is passed by the last event of the batch at most."""
    largest, taken = max(sizes), [sizes[0]]
    while (more := chunk(most - len(taken), sum(taken), largest)) > 0:
        came = sizes[len(taken) : len(taken) + more]
        taken += came
        if len(came) < more:
            break
    assert 1 <= len(taken) <= most
    assert sum(taken[:-1]) <= BATCH_BYTES


def test_small_events_are_read_in_one_call() -> None:
    assert chunk(4_095, 200, 200) == 4_095
    assert chunk(4_095, 0, 0) == 4_095
    assert chunk(0, 200, 200) == 0
