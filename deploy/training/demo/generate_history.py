"""Generate the Kafka records of ten months of flights: events, and outcomes reported later. Pure.

The last flight leaves `AGO_MS` before `now_ms`. As in practice, the outcome of a flight is reported hours after the arrival.
Some flights have no report, some have two, and some have a wrong report, which a later report corrects. A flight has the same
reports in every demo.
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
AGO_MS = HOUR_MS  # from the departure of the last flight until now
# irregular reports: ranges of the CRC-32 of a flight's id, modulo 1,000
SILENT = range(10)
TWICE = range(10, 15)
CORRECTED = range(15, 20)
REPORTED_HOURS = 12  # the maximum from the scheduled arrival to the first report
CORRECTED_HOURS = 30  # from the first report to the correction


class Record(NamedTuple):
    """A Kafka record to produce; `time_ms` is its timestamp (Unix ms)."""

    key: str
    value: bytes
    time_ms: int


class History(NamedTuple):
    """The records of the topic of events and of the topic of outcomes, each in order of time.

    `counts` has the number of flights with an irregular report of the outcome, by kind: `silent` (no report), `twice` (two
    reports) or `corrected` (a wrong report, then a correct one).
    """

    events: list[Record]
    outcomes: list[Record]
    counts: dict[str, int]


def history(now_ms: int) -> History:
    """Return the records of all ten months, from both data files, with times relative to `now_ms` (Unix ms)."""
    return moved([flight for path in (EARLIER, EXTRACT) for flight in flights(path)], now_ms)


def moved(labelled: list[tuple[Event, bool | None]], now_ms: int) -> History:
    """Convert flights to records. The last flight leaves `AGO_MS` before `now_ms`; the times of all others are shifted equally.

    Args:
        labelled: Events in order of departure. The second item is whether the flight arrived late, None if it never arrived.
        now_ms: The current time (Unix ms). Records of outcomes after this time are omitted.
    """
    # The timestamp of an event is its shifted scheduled departure.
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
    """Return the scheduled departure (Unix ms), with New York's local time read as UTC."""
    return round(datetime.fromisoformat(str(event["scheduled_departure"])).replace(tzinfo=UTC).timestamp() * 1_000)


def _report(event: Event, late: bool, departed_ms: int) -> tuple[str, list[Record]]:
    """Return the kind of a flight's report, and the records of the report.

    The kind is a key of `History.counts`, or an empty text for a regular report.
    """
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
