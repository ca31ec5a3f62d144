"""How late a partition is said to be."""

from hypothesis import given
from hypothesis import strategies as st

from scorer.observe.lag import LagClock

ONE = ("flights", 0)
NOW = 1_700_000_000_000


def test_lag_is_the_age_of_the_last_answer_while_records_wait() -> None:
    assert LagClock().seconds({ONE: 5}, {ONE: NOW - 90_000}, NOW) == {ONE: 90.0}


def test_nothing_is_late_where_nothing_waits() -> None:
    assert LagClock().seconds({ONE: 0}, {ONE: NOW - 90_000}, NOW) == {ONE: 0.0}


def test_an_event_after_a_quiet_hour_is_not_an_hour_late() -> None:
    clock, answered = LagClock(), {ONE: NOW}
    clock.seconds({ONE: 0}, answered, NOW + 3_600_000)
    assert clock.seconds({ONE: 1}, answered, NOW + 3_601_000) == {ONE: 1.0}


def test_a_partition_that_never_answers_is_late_from_the_first_look_on() -> None:
    clock = LagClock()
    assert clock.seconds({ONE: 7}, {}, NOW) == {ONE: 0.0}
    assert clock.seconds({ONE: 9}, {}, NOW + 120_000) == {ONE: 120.0}


def test_a_partition_that_comes_back_is_not_judged_by_its_former_stay() -> None:
    clock = LagClock()
    clock.seconds({ONE: 0}, {}, NOW)
    clock.seconds({}, {}, NOW + 60_000)
    assert clock.seconds({ONE: 3}, {}, NOW + 120_000) == {ONE: 0.0}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 10_000), st.booleans()), max_size=20))
def test_lag_is_never_negative_and_grows_no_faster_than_the_clock(looks: list[tuple[int, int, bool]]) -> None:
    clock, now, last = LagClock(), NOW, 0.0
    answered: dict[tuple[str, int], int] = {}
    for waiting, later, answers in looks:
        now += later
        answered = {ONE: now} if answers else answered
        found = clock.seconds({ONE: waiting}, answered, now)[ONE]
        assert 0 <= found <= last + later / 1_000 + 1e-6
        last = found
