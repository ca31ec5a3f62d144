"""The weather table of the demo: hourly reports of the airports of New York, which are joined with the flights.

A flight names the report of its airport at the hour of its scheduled departure. The data is in a file of this folder.
deploy/training/demo_dataset creates it.
"""

import lzma
from collections.abc import Iterator
from itertools import islice

import orjson

from scorer.demo.flights import DATA, Event, events, in_lap

TABLE = "weather"
EXTRACT = DATA / "weather-2013-09-10.jsonl.xz"
REPORT = "weather_report"
"""The field of a flight that contains the key of its weather report. It is also the setting `key` of the table."""
COLUMNS = ("wind_speed", "precip", "visib")
"""The columns of a report: wind speed in mph, precipitation of the hour in inches, visibility in miles."""

Row = dict[str, float | None]


def report_key(origin: str, scheduled_departure: str) -> str:
    """Return the key of the report of an airport at the hour of a local time, such as `EWR/2013-09-01T05`."""
    return f"{origin}/{scheduled_departure[:13]}"


def reports() -> Iterator[tuple[str, Row]]:
    """Yield the key and the row of each report in September and October 2013, by hour. Unknown values are None."""
    with lzma.open(EXTRACT) as file:
        fields = orjson.loads(file.readline())[1:]
        for line in file:
            key, *values = orjson.loads(line)
            yield key, dict(zip(fields, values, strict=True))


def lines_with_reports(flights: int) -> Iterator[bytes]:
    """Yield the first `flights` flights in an endless loop, as JSON in UTF-8 without line ends.

    Each flight has the key of its weather report. From the second round on, the ids end in `-lap2`, `-lap3` and so on.
    """
    once = list(islice(events(), flights))
    lap = 1
    while True:
        for event in once:
            yield orjson.dumps(_with_report(event, lap))
        lap += 1


def _with_report(event: Event, lap: int) -> Event:
    key = report_key(str(event["origin"]), str(event["scheduled_departure"]))
    return {**in_lap(event, lap), REPORT: key}
