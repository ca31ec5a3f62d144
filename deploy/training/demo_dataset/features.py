"""Features and label of a flight: the event that one row of the source becomes, and whether the flight arrived late.

Only what is known at departure goes into an event. The demo's stream and the training rows are made by the same `event()`,
so that a field means the same in both.
"""

import functools
from collections.abc import Mapping
from datetime import date

COLUMNS = (
    "year", "month", "day", "sched_dep_time", "sched_arr_time", "dep_delay", "arr_delay",
    "carrier", "flight", "origin", "dest", "distance",
)  # fmt: skip
LATE_MINUTES = 15  # a flight is late from here on: the line that the US Department of Transportation draws
_MISSING = ("", "NA")

Row = Mapping[str, str]
"""A row of the source by column: times are local clock times as HHMM, delays minutes, distances miles."""
Event = dict[str, str | int | float | None]


def event(row: Row) -> Event:
    """The event of one row: only what departure knows.

    `dep_delay` is in minutes, negative when early, null where it is not known (cancelled flights); `distance` in miles;
    `scheduled_departure` is New York's local time; `scheduled_minutes` is scheduled arrival minus scheduled departure
    on the two local clocks, modulo a day: time zones are not taken out. `day_of_week` is 1 (Monday) to 7.
    Raises KeyError or ValueError for a row of another shape.
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
    """Whether the flight of this row arrived late; None where it never arrived (cancelled, diverted)."""
    return None if row["arr_delay"] in _MISSING else float(row["arr_delay"]) >= LATE_MINUTES


@functools.lru_cache(maxsize=512)
def _day(year: str, month: str, day: str) -> tuple[str, int]:
    when = date(int(year), int(month), int(day))
    return when.isoformat(), when.isoweekday()
