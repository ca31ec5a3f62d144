"""The workload with 25 of its 30 numbers in the event and five from a table, and the restore of the table.

The module holds the events, the two versions of the model and the names of the measured cases; `whole` measures. The joined
fields are required, so that an event without a row becomes a dead letter and counts as missing.
"""

import re
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from tests.benchmarks.bench import tables
from tests.benchmarks.bench.counting import Figures
from tests.benchmarks.bench.machine import cpu_seconds
from tests.benchmarks.bench.stage import PARTITIONS, Running, Stage
from tests.benchmarks.bench.workload import HIDDEN, Workload, event, network
from tests.support import models

NAME = "customers"
TOPIC = "bench.customers"
EVENT = Workload(25)
JOINED = tuple(f"f{number}" for number in range(5))
"""The columns of the rows that `tables.fill` writes."""
UNJOINED_VERSION = "1.0.0"
JOINED_VERSION = "2.0.0"
STRIDE = 611_953  # prime, so that consecutive events have rows at distant places
POLL_SECONDS = 0.05
TIMEOUT_SECONDS = 5.0
VARIANTS: dict[str, dict[str, str] | None] = {
    "none": None,
    "partition, record key": {"scope": "partition"},
    "partition, path": {"scope": "partition", "key": "customer"},
    "all, record key": {"scope": "all"},
    "all, path": {"scope": "all", "key": "customer"},
}
"""The settings of the table by the name of a measurement, without topic; None: all 30 numbers are in the event."""


def package(folder: Path, seed: int) -> Path:
    """Write a model version; seed 0: all numbers are in the event; another seed: five of them are in the table."""
    if seed == 0:
        return Workload().package(folder)
    fields = [*EVENT.names, *({"name": f"{NAME}.{column}", "from": f"table:{NAME}"} for column in JOINED)]
    signature = {"inputs": [{"tensor": "x", "dtype": "float32", "fields": fields}], "output": {"tensor": "y"}}
    return models.package(folder, lambda path: network(path, (len(fields), *HIDDEN, 1), 0), signature)


class JoinedEvents:
    """The events by number; the number of a row is in the partition that the row's number has."""

    def __init__(self, rows: int) -> None:
        """Prepare events for a table of `rows` rows, a multiple of the number of partitions."""
        self._rows_per_partition = rows // PARTITIONS
        self._bodies = EVENT.bodies()

    def key(self, number: int) -> bytes:
        """Return the key of the event's record, which is the key of its row."""
        scattered = number // PARTITIONS * STRIDE % self._rows_per_partition
        return tables.key(scattered * PARTITIONS + number % PARTITIONS)

    def value(self, number: int) -> bytes:
        """Return the event: its id, 25 numbers, and the key of its row as the field `customer`."""
        return event(self._bodies, number)[:-1] + b',"customer":"%b"}' % self.key(number)

    def values(self, count: int) -> Iterator[bytes]:
        """Return the events 0 to `count`."""
        return map(self.value, range(count))


def fill_table(stage: Stage, rows: int) -> float:
    """Write the table to a new compacted topic; return the mean size of a key and its row in bytes."""
    return tables.fill(stage.servers, TOPIC, rows, PARTITIONS) / rows


class Sample(NamedTuple):
    """The table of a scorer at a time.

    Attributes:
        at: Unix time (s).
        cpu: the CPU time of the scorer so far (s).
        rows: the number of rows.
        size: the memory of the rows (bytes).
    """

    at: float
    cpu: float
    rows: float
    size: float


class RestoreWatch(threading.Thread):
    """Follows the metrics of a scorer until its table has all rows: their number and size, and the CPU time of the scorer.

    It ends then, because each request costs the scorer CPU time.
    """

    def __init__(self, running: Running, rows: int) -> None:
        """Start to follow a scorer whose table has `rows` rows."""
        super().__init__(name="restore-watch", daemon=True)
        self._running = running
        self._rows = rows
        self._samples: list[Sample] = []
        self._stopping = threading.Event()
        self.start()

    def stop(self) -> Figures:
        """End; return the figures of the restore."""
        self._stopping.set()
        self.join()
        return restore_figures(self._samples)

    def run(self) -> None:
        """Take samples until the table has all rows."""
        address: re.Match[str] | None = None
        while not self._stopping.wait(POLL_SECONDS):
            address = address or re.search(r"health and metrics on (http://[0-9.:]+)", self._running.said)
            if address is None:
                continue
            try:
                with urlopen(f"{address[1]}/metrics", timeout=TIMEOUT_SECONDS) as answer:
                    text = answer.read().decode()
            except OSError:
                continue
            families = text_string_to_metric_families(text)
            values = {sample.name: sample.value for family in families for sample in family.samples}
            rows, size = (values.get(f"scorer_table_{name}", 0.0) for name in ("rows", "bytes"))
            self._samples.append(Sample(time.time(), cpu_seconds(self._running.pid), rows, size))
            if rows >= self._rows:
                return


def restore_figures(samples: Sequence[Sample]) -> Figures:
    """Return the figures of a restore.

    The restore lasts from the last sample without rows to the first sample with all of them, so that no rate is too high.
    """
    if not samples or not samples[-1].rows:
        return {"restored_rows_per_s": 0, "restored_rows_per_cpu_s": 0, "rows": 0, "bytes_per_row": 0.0}
    rows = samples[-1].rows
    restored = next(sample for sample in samples if sample.rows == rows)
    began = [sample for sample in samples if not sample.rows][-1:] or samples[:1]
    seconds = max(restored.at - began[0].at, POLL_SECONDS)
    cpu = max(restored.cpu - began[0].cpu, POLL_SECONDS)
    return {
        "restored_rows_per_s": round(rows / seconds),
        "restored_rows_per_cpu_s": round(rows / cpu),
        "rows": round(rows),
        "bytes_per_row": round(samples[-1].size / rows, 1),
    }
