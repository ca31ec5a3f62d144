"""The demo's events: real flights out of New York in September and October 2013, and how each of them ended.

Only what is known at departure stands in an event; how the flight ended is kept apart in `outcomes()`. Reads one file that
lies beside this module, and nothing else: deploy/training/demo_dataset makes it, and says there what the fields mean.
"""

import lzma
from collections.abc import Iterable, Iterator
from itertools import count, islice
from pathlib import Path

import numpy as np
import orjson

DATA = Path(__file__).with_name("data")
EXTRACT = DATA / "flights-2013-09-10.jsonl.xz"
_LAP = "-lap"

Event = dict[str, str | int | float | None]


def flights(path: Path = EXTRACT) -> Iterator[tuple[Event, bool | None]]:
    """The flights of a file in order of scheduled departure, each with whether it arrived late: None where it never arrived."""
    with lzma.open(path) as file:
        *fields, _ = orjson.loads(file.readline())
        for line in file:
            *values, late = orjson.loads(line)
            yield dict(zip(fields, values, strict=True)), late


def events() -> Iterator[Event]:
    """The events of the flights, lap after lap; ids of further laps end in `-lap2` etc."""
    return (_in_lap(event, lap) for lap in count(1) for event, _ in flights())


def lines(limit: int | None = None) -> Iterator[bytes]:
    """The same events, at most so many, as JSON objects in UTF-8 without line ends."""
    return map(orjson.dumps, islice(events(), limit))


def first_lap(flight_id: str) -> str:
    """The id of the same flight in the first lap."""
    return flight_id.partition(_LAP)[0]


def outcomes() -> dict[str, bool]:
    """flight_id -> arrived late; only flights of the first lap that arrived."""
    return {str(event["flight_id"]): late for event, late in flights() if late is not None}


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


def _in_lap(event: Event, lap: int) -> Event:
    return event if lap == 1 else {**event, "flight_id": f"{event['flight_id']}{_LAP}{lap}"}
