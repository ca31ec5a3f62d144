"""The demo's events: real flights out of New York in September and October 2013, and how each of them ended.

Only what is known at departure goes into an event; how the flight ended is kept apart in `outcomes()`. The training
script makes its rows with the same `event()`, so that a field means the same in training and in the stream. Reads one
file that lies beside this module, and nothing else.
"""

import csv
import functools
import lzma
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from itertools import count, islice
from pathlib import Path

import numpy as np
import orjson

DATA = Path(__file__).with_name("data")
EXTRACT = DATA / "flights-2013-09-10.csv.xz"
COLUMNS = (
    "year", "month", "day", "sched_dep_time", "sched_arr_time", "dep_delay", "arr_delay",
    "carrier", "flight", "origin", "dest", "distance",
)  # fmt: skip
LATE_MINUTES = 15  # a flight is late from here on: the line that the US Department of Transportation draws
_LAP = "-lap"
_MISSING = ("", "NA")

Event = dict[str, str | int | float | None]


def event(row: Mapping[str, str], lap: int = 1) -> Event:
    """The event of one row (the columns are those of the source, times are local HHMM): only what departure knows.

    `dep_delay` is in minutes, negative when early, null where it is not known (cancelled flights); `distance` in miles;
    `scheduled_departure` is New York's local time; `scheduled_minutes` is scheduled arrival minus scheduled departure
    on the two local clocks, modulo a day: time zones are not taken out. `day_of_week` is 1 (Monday) to 7.
    Raises KeyError or ValueError for a row of another shape.
    """
    hour, minute = divmod(int(row["sched_dep_time"]), 100)
    arrival_hour, arrival_minute = divmod(int(row["sched_arr_time"]), 100)
    day, weekday = _day(row["year"], row["month"], row["day"])
    suffix = f"{_LAP}{lap}" if lap > 1 else ""
    return {
        "flight_id": f"{_flight_id(row, day)}{suffix}",
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


def late(row: Mapping[str, str]) -> bool | None:
    """Whether the flight of this row arrived late; None where it never arrived (cancelled, diverted)."""
    return None if row["arr_delay"] in _MISSING else float(row["arr_delay"]) >= LATE_MINUTES


def events() -> Iterator[Event]:
    """The flights of the extract in order of scheduled departure, lap after lap; ids of further laps end in `-lap2` etc."""
    return (event(row, lap) for lap in count(1) for row in _rows())


def lines(limit: int | None = None) -> Iterator[bytes]:
    """The same events, at most so many, as JSON objects in UTF-8 without line ends."""
    return map(orjson.dumps, islice(events(), limit))


def first_lap(flight_id: str) -> str:
    """The id of the same flight in the first lap."""
    return flight_id.partition(_LAP)[0]


def outcomes() -> dict[str, bool]:
    """flight_id -> arrived 15 minutes late or more; only flights of the first lap that arrived."""
    known: dict[str, bool] = {}
    for row in _rows():
        arrived_late = late(row)
        if arrived_late is not None:
            known[_flight_id(row, _day(row["year"], row["month"], row["day"])[0])] = arrived_late
    return known


def auc(pairs: Iterable[tuple[float, bool]]) -> float:
    """Area under the ROC curve of (score, outcome) pairs, exactly: the Mann-Whitney U of the ranks, ties at their mean. Raises
    ValueError where it is not defined: a score that is not a number, or outcomes that are all the same."""
    table = np.array([(score, outcome) for score, outcome in pairs], dtype=np.float64).reshape(-1, 2)
    scores, positive = table[:, 0], table[:, 1] != 0
    if np.isnan(scores).any():
        raise ValueError(f"{int(np.isnan(scores).sum())} of {len(scores)} scores are NaN: leave them out of the AUC")
    positives = int(positive.sum())
    negatives = len(scores) - positives
    if not positives or not negatives:
        raise ValueError(f"the AUC needs both outcomes, there are {positives} positive and {negatives} negative")
    _, group, sizes = np.unique(scores, return_inverse=True, return_counts=True)
    mean_ranks = np.cumsum(sizes) - (sizes - 1) / 2
    rank_sum = float(mean_ranks[group[positive]].sum())
    return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives)


def _rows() -> Iterator[dict[str, str]]:
    with lzma.open(EXTRACT, "rt", encoding="utf-8", newline="") as text:
        yield from csv.DictReader(text)


def _flight_id(row: Mapping[str, str], day: str) -> str:
    return f"{day}-{row['carrier']}-{row['flight']}-{row['origin']}-{int(row['sched_dep_time']):04}"


@functools.lru_cache(maxsize=512)
def _day(year: str, month: str, day: str) -> tuple[str, int]:
    when = date(int(year), int(month), int(day))
    return when.isoformat(), when.isoweekday()
