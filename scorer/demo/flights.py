"""The events of the demo: real flights from New York in September and October 2013, and their outcomes.

An event contains only values that are known at departure; `outcomes()` returns whether the flight was late. The data is in a
file of this folder. deploy/training/demo_dataset creates it and describes its fields.
"""

import lzma
from collections.abc import Iterable, Iterator
from itertools import count, islice
from pathlib import Path

import numpy as np
import orjson

DATA = Path(__file__).with_name("data")
TABLES = "tables"
"""The subfolder of DATA that contains the model version that joins flights with the weather table."""
EXTRACT = DATA / "flights-2013-09-10.jsonl.xz"
_LAP = "-lap"

Event = dict[str, str | int | float | None]


def flights(path: Path = EXTRACT) -> Iterator[tuple[Event, bool | None]]:
    """Yield the flights in the order of scheduled departure, each with whether it was late (None if it never arrived)."""
    with lzma.open(path) as file:
        *fields, _ = orjson.loads(file.readline())
        for line in file:
            *values, late = orjson.loads(line)
            yield dict(zip(fields, values, strict=True)), late


def events() -> Iterator[Event]:
    """Yield the flights as events in an endless loop; from the second round on, their ids end in `-lap2`, `-lap3` and so on."""
    return (in_lap(event, lap) for lap in count(1) for event, _ in flights())


def lines(limit: int | None = None) -> Iterator[bytes]:
    """Yield the events, at most `limit` (None for no limit), as JSON in UTF-8 without line ends."""
    return map(orjson.dumps, islice(events(), limit))


def original_id(flight_id: str) -> str:
    """Return the id of a flight without the suffix of the round, such as `-lap2`."""
    return flight_id.partition(_LAP)[0]


def outcomes() -> dict[str, bool]:
    """Return whether each flight that arrived was late, by its id in the first round."""
    return {str(event["flight_id"]): late for event, late in flights() if late is not None}


def auc(pairs: Iterable[tuple[float, bool]]) -> float:
    """Return the exact area under the ROC curve of (score, outcome) pairs, from the Mann-Whitney U with mean ranks for ties.

    Raises:
        ValueError: A score is NaN, or all outcomes are the same.
    """
    table = np.array([(score, outcome) for score, outcome in pairs], dtype=np.float64).reshape(-1, 2)
    scores = table[:, 0]
    positive = table[:, 1] != 0
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


def in_lap(event: Event, lap: int) -> Event:
    """Return the flight with the id of the round `lap`: from the second round on, the id ends in `-lap2`, `-lap3` and so on."""
    return event if lap == 1 else {**event, "flight_id": f"{event['flight_id']}{_LAP}{lap}"}
