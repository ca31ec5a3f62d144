"""A yardstick for the CPU it is run on: what one fixed piece of work costs here and now.

Figures of two runs, or of two machines, are compared as multiples of it. The work resembles the scorer's: JSON in, tuples,
a matrix out.
"""

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

ROWS = 64
LEAST_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU microseconds: the median of the rounds, the lowest and the highest."""

    us: float
    lowest: float
    highest: float

    def to_dict(self) -> dict[str, float]:
        return {"us": round(self.us, 3), "lowest": round(self.lowest, 3), "highest": round(self.highest, 3)}


def cost(call: Callable[[], object], events: int, *, rounds: int) -> Cost:
    """What `call` costs this thread for each of its `events`. Each round repeats it until LEAST_SECONDS are over."""
    call()
    found = []
    for _ in range(rounds):
        calls, began, spent = 0, time.thread_time(), 0.0
        while spent < LEAST_SECONDS:
            call()
            calls += 1
            spent = time.thread_time() - began
        found.append(spent / calls / events * 1e6)
    return Cost(statistics.median(found), min(found), max(found))


def yardstick(rounds: int) -> Cost:
    fields = {f"f{k}": k / 7 for k in range(30)}
    text = json.dumps({"id": 1, **fields})
    names = tuple(fields)

    def work() -> object:
        rows = []
        for _ in range(ROWS):
            row = json.loads(text)
            rows.append(tuple(row[name] for name in names))
        return np.array(rows, np.float32)

    return cost(work, ROWS, rounds=rounds)
