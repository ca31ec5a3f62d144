"""Ten months of flights as records: events, and outcomes that came later. Pure: the last flight leaves shortly before `now_ms`.

Outcomes are irregular as in practice: each is reported hours after the arrival, some never, some twice, and some are wrong at
first and corrected later. The id of a flight decides which, so that every demo has the same ones.
"""

import zlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

import orjson

from scorer.demo.flights import EXTRACT, Event, flights
from training.demo_dataset.extract import EARLIER

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
AGO_MS = HOUR_MS  # before now the last flight has left
# of a thousand flights
SILENT = range(10)
TWICE = range(10, 15)
CORRECTED = range(15, 20)
REPORTED_HOURS = 12  # after its arrival, at the latest
CORRECTED_HOURS = 30  # after the first report


class Record(NamedTuple):
    """A record to write; `time_ms` is its Kafka timestamp (Unix ms)."""

    key: str
    value: bytes
    time_ms: int


class History(NamedTuple):
    """Both topics, each in order of time. `counts` has the number of flights of each kind of outcome."""

    events: list[Record]
    outcomes: list[Record]
    counts: dict[str, int]


def history(now_ms: int) -> History:
    """Return the flights of both files."""
    return moved([flight for path in (EARLIER, EXTRACT) for flight in flights(path)], now_ms)


def moved(labelled: list[tuple[Event, bool | None]], now_ms: int) -> History:
    """Return these flights, in order of departure, each with its lateness.

    Times are scheduled departures, shifted so that the last one was AGO_MS before `now_ms`. Outcomes after `now_ms` are
    omitted.
    """
    shift = now_ms - AGO_MS - departure_ms(labelled[-1][0])
    events = []
    outcomes = []
    counts = dict.fromkeys(("silent", "twice", "corrected"), 0)
    for event, late in labelled:
        time_ms = departure_ms(event) + shift
        events.append(Record(f"{event['carrier']}-{event['flight']}", orjson.dumps(event), time_ms))
        if late is not None:
            kind, records = _report(event, late, time_ms)
            outcomes += records
            if kind:
                counts[kind] += 1
    return History(events, sorted(_by(now_ms, outcomes), key=lambda record: record.time_ms), counts)


def departure_ms(event: Event) -> int:
    """Return the scheduled departure as if New York's clock were UTC."""
    return round(datetime.fromisoformat(str(event["scheduled_departure"])).replace(tzinfo=UTC).timestamp() * 1_000)


def _report(event: Event, late: bool, departed_ms: int) -> tuple[str, list[Record]]:
    """Return the kind of the outcome's report, and its records."""
    name = str(event["flight_id"])
    drawn = zlib.crc32(name.encode())
    chance = drawn % 1_000
    hours = 1 + drawn // 1_000 % REPORTED_HOURS
    at = departed_ms + int(event["scheduled_minutes"] or 0) * MINUTE_MS + hours * HOUR_MS
    right = _outcome(name, late, at)
    if chance in SILENT:
        return "silent", []
    if chance in TWICE:
        return "twice", [right, right._replace(time_ms=at + HOUR_MS)]
    if chance in CORRECTED:
        return "corrected", [_outcome(name, not late, at), right._replace(time_ms=at + CORRECTED_HOURS * HOUR_MS)]
    return "", [right]


def _outcome(flight_id: str, late: bool, time_ms: int) -> Record:
    return Record(flight_id, orjson.dumps({"flight_id": flight_id, "late": late}), time_ms)


def _by(now_ms: int, records: Iterable[Record]) -> Iterator[Record]:
    return (record for record in records if record.time_ms <= now_ms)
