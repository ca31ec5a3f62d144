"""`scorer run` with a hole in it: the same service, put together from parts that crash on order, or that are wrong on purpose.

    python launcher.py CONFIG [--set key=value ...]

The environment says what: ARM_FILE names a file whose content, `before:commit_transaction` for instance, kills its processes
with SIGKILL at that call of a transactional producer; BROKEN is `no-rotation` (a producer keeps its place however slow its
commit was) or `late-metadata` (batches are taken ahead, the group metadata is asked for when the offsets are sent, and
assignment epochs are not looked at). The product has no such switch.
"""

import argparse
import functools
import math
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from publisher.errors import Fatal
from publisher.kafka import clients as kafka
from publisher.kafka.clients import KafkaSettings
from publisher.kafka.partitions import Partition
from publisher.process import logs
from publisher.process.configuration import SettingsError
from publisher.session.exactly_once import TransactionSession
from scorer.events.batch import Batch
from scorer.events.native.records import PackedRecords
from scorer.intake.consumer import Intake
from scorer.process import service, supervisor
from scorer.settings import load

AHEAD_SECONDS = 1.0  # as if inference took so long


class CrashingProducer:
    """A transactional producer that looks into the armed file around each step of a transaction. Nothing of it points back to
    it, so that it ends when the session gives it up, as the one within would alone."""

    def __init__(self, producer: Producer, armed: Path) -> None:
        def around(call: Callable[..., Any]) -> Callable[..., Any]:
            before, after = f"before:{call.__name__}", f"after:{call.__name__}"

            def stepped(*arguments: Any) -> Any:
                _crash_at(before, producer, armed)
                result = call(*arguments)
                _crash_at(after, producer, armed)
                return result

            return stepped

        self.list_topics = producer.list_topics
        self.init_transactions = producer.init_transactions
        self.abort_transaction = producer.abort_transaction
        self.poll = producer.poll
        self.flush = producer.flush
        self.handle = getattr(producer, "handle", 0)
        self.begin_transaction = around(producer.begin_transaction)
        self.produce = around(producer.produce)
        self.send_offsets_to_transaction = around(producer.send_offsets_to_transaction)
        self.commit_transaction = around(producer.commit_transaction)


def _crash_at(point: str, producer: Producer, armed: Path) -> None:
    """End the worker and its parent as `kill -9` does, where this point is armed; the order is used up. They are a process
    group of their own."""
    try:
        order = os.readlink(armed)  # noqa: PTH115 - a Path costs ten times as much, and this is asked every event
    except OSError:
        return
    if order == point:
        if point == "after:produce":
            producer.poll(0.05)  # let the record reach the broker
        armed.unlink()
        os.killpg(0, signal.SIGKILL)


class LateIntake(Intake):
    """Wrong on purpose: see the module. A batch taken before a rebalance is published after it, as if it were still ours."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        self._ahead: deque[tuple[float, Batch]] = deque()
        super().__init__(*arguments, **more)

    @property
    def group(self) -> Any:
        return self._consumer.consumer_group_metadata()

    def take(self, wait: float, limit: Callable[[int], int]) -> Batch | None:
        if (fresh := super().take(wait, limit)) is not None:
            self._ahead.append((time.monotonic(), fresh))
        due = self._ahead and time.monotonic() - self._ahead[0][0] >= AHEAD_SECONDS
        return self._ahead.popleft()[1] if due else None

    def rewind(self, partitions: Iterable[Partition] | None = None) -> None:
        self._ahead.clear()
        super().rewind(partitions)

    def stale(self, batch: Batch) -> bool:  # noqa: ARG002 - the name is the base class's
        return False


def crashing(armed: Path) -> Callable[..., Any]:
    write = PackedRecords.write

    def writing(records: PackedRecords, producer: Any, first: int) -> int:
        _crash_at("before:produce", producer, armed)
        reached = write(records, producer, first)
        _crash_at("after:produce", producer, armed)
        return reached

    def make(
        settings: KafkaSettings, name: str, client_id: str, batch_bytes: int, plugin: kafka.Plugin | None
    ) -> CrashingProducer:
        return CrashingProducer(kafka.transactional_producer(settings, name, client_id, batch_bytes, plugin), armed)

    PackedRecords.write = writing  # type: ignore[assignment, method-assign]
    return make


def parts(armed: str | None, broken: str | None) -> service.Parts:
    chosen: dict[str, Any] = {}
    if armed:
        chosen["make_producer"] = crashing(Path(armed))
    if broken == "no-rotation":
        chosen["make_session"] = functools.partial(TransactionSession, slow_commit_seconds=math.inf)
    elif broken == "late-metadata":
        chosen["make_intake"] = LateIntake
    elif broken:
        raise Fatal(f"BROKEN={broken} is not known", "no-rotation or late-metadata", 2)
    return service.Parts(**chosen)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("config", type=Path)
    parser.add_argument("--set", action="append", default=[])
    options = parser.parse_args()
    try:
        settings = load(options.config, options.set).settings
        logs.configure({"scorer": settings.owner}, "INFO")
        work = functools.partial(service.run, parts=parts(os.environ.get("ARM_FILE"), os.environ.get("BROKEN")))
        supervisor.run(settings, 1, work, "INFO")
    except SettingsError as error:
        sys.exit(f"error: {error}")
    except Fatal as error:
        print(f"error: {error}\nhint: {error.hint}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
