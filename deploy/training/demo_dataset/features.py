"""Features and label of a flight: the event of a source row, and whether the flight arrived late.

An event contains only values that are known at departure. The demo and the training use the same events.
"""

import functools
from collections.abc import Mapping
from datetime import date

from scorer.demo import weather

COLUMNS = (
    "year",
    "month",
    "day",
    "sched_dep_time",
    "sched_arr_time",
    "dep_delay",
    "arr_delay",
    "carrier",
    "flight",
    "origin",
    "dest",
    "distance",
)
WEATHER_COLUMNS = ("origin", "month", "day", "hour", *weather.COLUMNS)
LATE_MINUTES = 15  # the delay from which on a flight counts as late, as the US Department of Transportation defines it
_MISSING = ("", "NA")

Row = Mapping[str, str]
"""A row of the source by column: times are local clock times as HHMM, delays minutes, distances miles."""
Event = dict[str, str | int | float | None]


def event(row: Row) -> Event:
    """Return the event of one source row, with only the values that are known at departure.

    `dep_delay` is in minutes: negative if early, null if unknown (cancelled flights). `distance` is in miles.
    `scheduled_departure` is New York's local time. `scheduled_minutes` is the scheduled arrival minus the scheduled departure,
    each in the local time of its airport, modulo one day; it includes the difference of the time zones. `day_of_week` is 1
    (Monday) to 7.

    Raises:
        KeyError: The row lacks a column.
        ValueError: A value of the row cannot be parsed.
    """
    hour, minute = divmod(int(row["sched_dep_time"]), 100)
    arrival_hour, arrival_minute = divmod(int(row["sched_arr_time"]), 100)
    day, weekday = _day(row["year"], row["month"], row["day"])
    return {
        "flight_id": f"{day}-{row['carrier']}-{row['flight']}-{row['origin']}-{hour:02}{minute:02}",
        "scheduled_departure": f"{day}T{hour:02}:{minute:02}",
        "carrier": row["carrier"],
        "flight": int(row["flight"]),
        "origin": row["origin"],
        "dest": row["dest"],
        "distance": int(row["distance"]),
        "month": int(row["month"]),
        "day_of_week": weekday,
        "hour": hour,
        "minute": minute,
        "scheduled_minutes": (arrival_hour * 60 + arrival_minute - hour * 60 - minute) % 1440,
        "dep_delay": None if row["dep_delay"] in _MISSING else int(float(row["dep_delay"])),
    }


def late(row: Row) -> bool | None:
    """Return whether a flight was at least `LATE_MINUTES` late on arrival; None if it was cancelled or diverted."""
    return None if row["arr_delay"] in _MISSING else float(row["arr_delay"]) >= LATE_MINUTES


def report(row: Row) -> tuple[str, dict[str, float | None]]:
    """Return the key and the columns of the weather report in one source row; None for an unknown value.

    Raises:
        KeyError: The row lacks a column.
        ValueError: A value of the row cannot be parsed.
    """
    day, _ = _day(row["year"], row["month"], row["day"])
    key = weather.report_key(row["origin"], f"{day}T{int(row['hour']):02}")
    values = {name: None if row[name] in _MISSING else round(float(row[name]), 2) for name in weather.COLUMNS}
    return key, values


def join_report(flight: Event, reports: Mapping[str, Mapping[str, float | None]]) -> Event:
    """Return the flight with the columns of its weather report as fields `weather.NAME`; null without a report."""
    row = reports.get(weather.report_key(str(flight["origin"]), str(flight["scheduled_departure"])), {})
    return {**flight, **{f"{weather.TABLE}.{name}": row.get(name) for name in weather.COLUMNS}}


@functools.lru_cache(maxsize=512)
def _day(year: str, month: str, day: str) -> tuple[str, int]:
    when = date(int(year), int(month), int(day))
    return when.isoformat(), when.isoweekday()
