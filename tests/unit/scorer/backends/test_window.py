"""The in-flight window, on a clock that is handed in."""

from hypothesis import given
from hypothesis import strategies as st

from scorer.backends.servers.window import FIRST, LARGEST, Window


def test_a_full_window_that_is_answered_grows_by_one_and_one_that_is_not_used_up_stays() -> None:
    window = Window(4.0)
    window.answered(3)
    assert window.limit == 4.0
    for _ in range(4):
        window.answered(4)
    assert 4.9 < window.limit <= 5.0


def test_requests_that_were_already_out_shrink_it_once() -> None:
    window = Window(8.0)
    for sent_at in (1.0, 1.1, 1.2):
        window.missed(sent_at, now=2.0)
    assert window.limit == 4.0
    window.missed(sent_at=2.5, now=3.5)
    assert window.limit == 2.0


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 40), st.floats(0, 100), st.floats(0, 5)), max_size=60))
def test_it_stays_between_one_and_the_largest(reports: list[tuple[bool, int, float, float]]) -> None:
    window = Window()
    assert window.limit == FIRST
    for good, in_flight, sent_at, took in reports:
        if good:
            window.answered(in_flight)
        else:
            window.missed(sent_at, sent_at + took)
        assert 1.0 <= window.limit <= LARGEST
        assert window.room(0)
        assert not window.room(int(LARGEST))
