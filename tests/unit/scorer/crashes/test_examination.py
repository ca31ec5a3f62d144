"""An examination finds every event that kills, convicts no other, and ends."""

from hypothesis import given
from hypothesis import strategies as st

from scorer.crashes.examination import QUIET_SECONDS, Examination
from scorer.events.batch import Batch

LARGEST = 4_096
PLACE = ("flights", 0)


def batch(first: int, events: int) -> Batch:
    """So many events of one partition."""
    n, offsets = events, list(range(first, first + events))
    return Batch(["flights"] * n, [0] * n, offsets, [None] * n, [None] * n, [0] * n, [None] * n)


def examined(events: int, deadly: set[int], by_hand: set[int]) -> tuple[set[int], int]:
    """The offsets convicted, and how many processes died. Some calls, by their number, are killed by hand."""
    examination, at, convicted, deaths, calls = Examination({PLACE: events}, LARGEST, 0.0), 0, set(), 0, 0
    while not examination.over({PLACE: at}, 0.0):
        taken = batch(at, min(examination.limit, events - at))
        calls += 1
        if deadly & set(taken.offsets) or calls in by_hand:
            deaths += 1
            if not examination.died(taken, 0.0):
                continue
            convicted |= set(taken.offsets)
        examination.answered(taken)
        at += len(taken)
    return convicted, deaths


@given(st.integers(1, 6_000), st.sets(st.integers(0, 5_999), max_size=12))
def test_every_guilty_event_is_convicted_and_no_other(events: int, deadly: set[int]) -> None:
    deadly = {offset for offset in deadly if offset < events}
    convicted, deaths = examined(events, deadly, set())
    assert convicted == deadly
    assert deaths <= 30 * len(deadly)


@given(st.integers(1, 6_000), st.sets(st.integers(0, 5_999), max_size=3), st.sets(st.integers(1, 200), max_size=40))
def test_one_kill_by_hand_convicts_nobody(events: int, deadly: set[int], by_hand: set[int]) -> None:
    """However often it happens, unless twice in a row."""
    by_hand = {call for call in by_hand if call - 1 not in by_hand}
    deadly = {offset for offset in deadly if offset < events}
    assert examined(events, deadly, by_hand)[0] == deadly


def test_an_examination_ends_when_another_scorer_has_answered_or_nobody_has_died_for_long() -> None:
    examination = Examination({PLACE: 10, ("flights", 1): 5}, LARGEST, 0.0)
    assert not examination.over({PLACE: 10, ("flights", 1): 4}, 1.0)
    assert examination.suspects == {("flights", 1): 5}
    assert examination.over({("flights", 1): 4}, QUIET_SECONDS + 1.0)
    assert examination.over({("flights", 1): 5}, 2.0)
