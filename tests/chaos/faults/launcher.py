"""`scorer` with producers that crash on order (`crashing.py`), or with a part that is wrong on purpose.

The environment variable BROKEN is `no-rotation` (a producer stays in use after a slow commit) or `late-metadata` (batches are
taken ahead, the group metadata is read when the offsets are sent, and assignment epochs are not checked).
The product has no such switch.
"""

import functools
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from publisher.kafka.partitions import Partition
from publisher.transactions.exactly_once import TransactionSession
from scorer import cli
from scorer.consumer.consumer import EventConsumer
from scorer.decoding.batch import Batch
from scorer.native.produce_records import ColumnarRecords
from scorer.service import broker_connections, worker_main
from scorer.service.broker_connections import BrokerConnections
from tests.chaos.crashing import CrashingProducer, around

AHEAD_SECONDS = 1.0  # as if inference took so long
WRITE = ColumnarRecords.write


class LateIntake(EventConsumer):
    """Wrong on purpose: see the module. A batch taken before a rebalance is published after it, as if it were still valid."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        self._ahead: deque[tuple[float, Batch]] = deque()
        super().__init__(*arguments, **more)

    @property
    def group(self) -> Any:
        return self._consumer.consumer_group_metadata()

    def take(self, wait: float, limit: Callable[[int], int], until: float = 0.0) -> Batch | None:
        if (batch := super().take(wait, limit, until)) is not None:
            self._ahead.append((time.monotonic(), batch))
        is_due = self._ahead and time.monotonic() - self._ahead[0][0] >= AHEAD_SECONDS
        return self._ahead.popleft()[1] if is_due else None

    def rewind(self, partitions: Iterable[Partition] | None = None) -> None:
        self._ahead.clear()
        super().rewind(partitions)

    def stale(self, batch: Batch) -> bool:  # noqa: ARG002 - the name is the base class's
        return False


BROKEN: dict[str, dict[str, Any]] = {
    "": {},
    "no-rotation": {"TransactionSession": functools.partial(TransactionSession, slow_commit_seconds=math.inf)},
    "late-metadata": {"EventConsumer": LateIntake},
}
"""The classes that the worker uses instead, by name."""


class CrashingConnections(BrokerConnections):
    """Connections whose transactional producers crash the process on order."""

    def open_producer(self, transactional_id: str, batch_bytes: int) -> Any:
        return CrashingProducer(super().open_producer(transactional_id, batch_bytes))


def writing(records: ColumnarRecords, producer: Any, first: int) -> int:
    """Wrap the step `produce` for records that are produced in one call."""
    reached: int = around(functools.partial(WRITE, records), "produce", producer)(producer, first)
    return reached


if __name__ == "__main__":
    run = functools.partial(worker_main.run, connect_brokers=CrashingConnections)
    setattr(worker_main, "run", run)  # noqa: B010 - the command has no option for it
    setattr(ColumnarRecords, "write", writing)  # noqa: B010 - as above
    for name, replacement in BROKEN[os.environ.get("BROKEN", "")].items():
        setattr(broker_connections, name, replacement)
    cli.main()
