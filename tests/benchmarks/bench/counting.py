"""From arrivals to figures: percentiles, and the counts of missing and duplicate ids. Pure."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Figures = dict[str, Any]


def count(ids: NDArray[Any], expected: int) -> dict[str, int]:
    """Count `missing` and `duplicates` among the ids 0 to `expected`."""
    unique = np.unique(ids)
    return {"missing": expected - len(unique), "duplicates": len(ids) - len(unique)}


def latency(delays_ms: NDArray[Any]) -> dict[str, float | None]:
    """Return percentiles and the maximum in ms; None without delays."""
    if not len(delays_ms):
        return dict.fromkeys(("p50_ms", "p99_ms", "p999_ms", "max_ms"))
    values = np.percentile(delays_ms, (50, 99, 99.9, 100)).tolist()
    return {name: round(value, 2) for name, value in zip(("p50_ms", "p99_ms", "p999_ms", "max_ms"), values, strict=True)}


def firsts(arrivals: NDArray[Any]) -> NDArray[Any]:
    """Return the first arrival of each id: (3, n), with ascending ids."""
    order = np.lexsort((arrivals[1], arrivals[0]))
    first_indices = order[np.unique(arrivals[0][order], return_index=True)[1]]
    first: NDArray[Any] = arrivals[:, first_indices]
    return first


def delays(arrivals: NDArray[Any], due_ms: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the arrived ids, and the ms from the time at which each was due (by id) to its first arrival."""
    first = firsts(arrivals)
    ids = first[0].astype(np.int64)
    return ids, first[1] - due_ms[ids]


def spread(runs: list[Figures]) -> Figures:
    """Return the median, the lowest and the highest of each figure of repeated runs; sum the counts of faults."""
    rows: Figures = {}
    for name in runs[0]:
        values = [run[name] for run in runs]
        if name in ("missing", "duplicates", "wrong"):
            rows[name] = sum(values)
        elif all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            rows[name] = {"median": float(np.median(values)), "lowest": min(values), "highest": max(values)}
        else:
            rows[name] = values[0]
    return rows


def beside(runs: list[Figures], others: list[Figures], name: str) -> Figures:
    """Return the ratio of a figure of two measurements, run by run in turn: median, lowest and highest."""
    times = [round(run[name] / other[name], 3) for run, other in zip(runs, others, strict=True)]
    return {"median": float(np.median(times)), "lowest": min(times), "highest": max(times)}


def above(runs: list[Figures], others: list[Figures], name: str) -> Figures:
    """Return the difference of a figure of two measurements, run by run in turn: median, lowest and highest."""
    differences = [round(run[name] - other[name], 2) for run, other in zip(runs, others, strict=True)]
    return {"median": float(np.median(differences)), "lowest": min(differences), "highest": max(differences)}


def swap(ids: NDArray[Any], delays_ms: NDArray[Any], due_ms: NDArray[Any], asked_ms: float, flipped_ms: float) -> Figures:
    """Return the latency before the promotion, from it until a second after the flip, and in the second around the flip."""
    due = due_ms[ids]
    before = latency(delays_ms[due < asked_ms])
    during = latency(delays_ms[(due >= asked_ms) & (due < flipped_ms + 1_000)])
    around = latency(delays_ms[np.abs(due - flipped_ms) <= 500])
    has_both = before["p99_ms"] and around["p99_ms"]
    ratio = round(float(around["p99_ms"] or 0) / float(before["p99_ms"] or 1), 2) if has_both else None
    return {"before": before, "during": during, "swap_second": around, "p99_ratio": ratio}
