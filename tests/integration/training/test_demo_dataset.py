"""The demo's events: which flights there are, in which order, how they ended, and the exact AUC."""

import math
from collections import Counter
from itertools import islice

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from scorer.demo import flights

FLIGHTS = 56_463
SCORES = st.one_of(st.integers(0, 5).map(lambda n: n / 5), st.floats(0, 1))


@pytest.fixture(scope="module")
def lap() -> list[flights.Event]:
    return list(islice(flights.events(), FLIGHTS))


def test_a_lap_is_every_flight_once_in_the_order_of_departure_and_named_by_it(lap: list[flights.Event]) -> None:
    assert len({event["flight_id"] for event in lap}) == len(lap) == FLIGHTS
    assert sum(event["dep_delay"] is None for event in lap) == 688
    assert Counter(event["month"] for event in lap) == {9: 27_574, 10: 28_889}
    times = [str(event["scheduled_departure"]) for event in lap]
    assert times == sorted(times)
    assert (times[0], times[-1][:10]) == ("2013-09-01T05:16", "2013-10-31")
    for event, time in zip(lap, times, strict=True):
        named = f"{event['carrier']}-{event['flight']}-{event['origin']}-{event['hour']:02}{event['minute']:02}"
        assert event["flight_id"] == f"{time[:10]}-{named}"


def test_the_first_flight_is_the_one_that_left(lap: list[flights.Event]) -> None:
    assert lap[0] == {
        "flight_id": "2013-09-01-UA-1545-EWR-0516",
        "scheduled_departure": "2013-09-01T05:16",
        "carrier": "UA",
        "flight": 1545,
        "origin": "EWR",
        "dest": "IAH",
        "distance": 1400,
        "month": 9,
        "day_of_week": 7,
        "hour": 5,
        "minute": 16,
        "scheduled_minutes": 164,
        "dep_delay": -8,
    }
    assert {frozenset(event) for event in lap} == {frozenset(lap[0])}  # no event tells how its flight ended


def test_outcomes_are_those_of_the_flights_that_arrived(lap: list[flights.Event]) -> None:
    outcomes = flights.outcomes()
    assert len(outcomes) == FLIGHTS - 835
    assert set(outcomes) < {event["flight_id"] for event in lap}
    assert sum(outcomes.values()) == 8731
    cancelled = next(str(event["flight_id"]) for event in lap if event["dep_delay"] is None)
    assert cancelled not in outcomes


def test_more_events_than_flights_continue_with_further_laps(lap: list[flights.Event]) -> None:
    count = 2 * FLIGHTS + 3
    ids = [str(event["flight_id"]) for event in islice(flights.events(), count)]
    assert len(set(ids)) == len(ids) == count
    base = [str(event["flight_id"]) for event in lap]
    assert ids[:FLIGHTS] == base
    assert ids[FLIGHTS : 2 * FLIGHTS] == [f"{name}-lap2" for name in base]
    assert ids[2 * FLIGHTS :] == [f"{name}-lap3" for name in base[:3]]
    assert [flights.original_id(name) for name in ids] == [*base, *base, *base[:3]]


def test_lines_are_the_events_as_json(lap: list[flights.Event]) -> None:
    lines = list(islice(flights.lines(), 7))
    assert [orjson.loads(line) for line in lines] == lap[:7]
    assert all(b"\n" not in line for line in lines)


@given(st.lists(st.tuples(SCORES, st.booleans()), min_size=2))
def test_the_auc_is_the_exact_one(pairs: list[tuple[float, bool]]) -> None:
    outcomes = [outcome for _, outcome in pairs]
    if len(set(outcomes)) < 2:
        with pytest.raises(ValueError, match="both outcomes"):
            flights.auc(pairs)
        return
    expected = roc_auc_score(outcomes, [score for score, _ in pairs])
    assert flights.auc(pairs) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [([(math.nan, True), (0.5, False)], "1 of 2 scores are NaN"), ([], "0 positive and 0 negative")],
)
def test_scores_that_have_no_auc_are_refused(pairs: list[tuple[float, bool]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        flights.auc(pairs)
