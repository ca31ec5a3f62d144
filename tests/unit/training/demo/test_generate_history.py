"""The flights that the training demo writes: their times, and outcomes that are late, missing, repeated or corrected."""

from collections import defaultdict
from typing import Any

import orjson
import pytest

from scorer.demo import flights
from training.demo import generate_history
from training.demo.generate_history import AGO_MS, CORRECTED_HOURS, HOUR_MS, REPORTED_HOURS, History, Record

NOW_MS = 1_790_000_000_000
DAY_MS = 24 * HOUR_MS


@pytest.fixture(scope="module")
def flight_outcomes() -> list[tuple[flights.Event, bool | None]]:
    return list(flights.flights())


@pytest.fixture(scope="module")
def history(flight_outcomes: list[tuple[flights.Event, bool | None]]) -> History:
    return generate_history.moved(flight_outcomes, NOW_MS)


def outcomes(history: History) -> dict[str, list[Record]]:
    reports = defaultdict(list)
    for record in history.outcomes:
        reports[record.key].append(record)
    return reports


def value(record: Record) -> Any:
    return orjson.loads(record.value)


def test_the_last_flight_left_shortly_before_now_and_all_keep_their_distance(
    flight_outcomes: list[tuple[flights.Event, bool | None]], history: History
) -> None:
    assert [value(record) for record in history.events] == [event for event, _ in flight_outcomes]
    assert history.events[-1].time_ms == NOW_MS - AGO_MS
    times = [record.time_ms for record in history.events]
    assert times == sorted(times)
    first, last = flight_outcomes[0][0], flight_outcomes[-1][0]
    assert times[-1] - times[0] == generate_history.departure_ms(last) - generate_history.departure_ms(first)
    assert 60 * DAY_MS < times[-1] - times[0] < 61 * DAY_MS
    assert history.events[0].key == f"{first['carrier']}-{first['flight']}"


def test_an_outcome_is_hours_after_its_flight_and_none_in_the_future(history: History) -> None:
    times = [record.time_ms for record in history.outcomes]
    assert times == sorted(times)
    assert times[-1] <= NOW_MS
    departed = {value(record)["flight_id"]: record.time_ms for record in history.events}
    waits = {name: (records[0].time_ms - departed[name]) / HOUR_MS for name, records in outcomes(history).items()}
    assert min(waits.values()) > 1
    assert max(waits.values()) < 24 + REPORTED_HOURS
    assert sum(wait > 6 for wait in waits.values()) > len(waits) / 2
    recent = {name for name, time_ms in departed.items() if time_ms > NOW_MS - 3 * HOUR_MS}
    assert recent
    assert len(recent & waits.keys()) < len(recent) / 2, "most of these outcomes are in the future"


def test_the_last_outcome_is_right_and_missing_repeated_and_corrected_ones_are_counted(history: History) -> None:
    reports, right = outcomes(history), flights.outcomes()
    old = {value(r)["flight_id"] for r in history.events if r.time_ms < NOW_MS - 4 * DAY_MS} & right.keys()
    assert all(value(reports[name][-1]) == {"flight_id": name, "late": right[name]} for name in old & reports.keys())
    repeated = [name for name in old & reports.keys() if len(reports[name]) > 1]
    corrected = [name for name in repeated if value(reports[name][0])["late"] != right[name]]
    assert all(reports[name][1].time_ms - reports[name][0].time_ms == CORRECTED_HOURS * HOUR_MS for name in corrected)
    shares = {"silent": len(old - reports.keys()), "twice": len(repeated) - len(corrected), "corrected": len(corrected)}
    for kind, count in shares.items():
        assert 0 < count <= history.counts[kind] <= count * 61 / 50
    assert 0.008 < shares["silent"] / len(old) < 0.012
