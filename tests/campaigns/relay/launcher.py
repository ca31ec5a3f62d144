"""`publisher run` with a hole in it: the installed command's own code, which crashes on order, or is wrong on purpose.

    python launcher.py run CONFIG [--set key=value ...]

The environment says what: ARM_FILE names a link whose target, `before:flush` for instance, kills the process with SIGKILL at
that call of a lane's producer; BROKEN is `loose-positions` (checkpoints are written beside the transaction, not in it) or
`no-rotation` (a producer keeps its place however slow its commit was). The product has no such switch.
"""

import functools
import math
import os
import random
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from publisher import cli
from publisher.kafka import clients as kafka_clients
from publisher.relay import sides
from publisher.session.exactly_once import TransactionSession

ARMED = Path(os.environ.get("ARM_FILE", "/nonexistent"))
CHECKPOINTS = "checkpoints"  # how the topic of positions ends here
RECORDS_BEFORE = 30  # at most, of the transaction in which `produce` is the point
COMMIT_SECONDS = 0.004


class CrashingProducer(Producer):
    """Ends the process at the point that is armed; the order is read when a transaction begins, and used up."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._order = ""

    def init_transactions(self, *arguments: Any) -> None:
        self._order = ordered()
        self._step("init_transactions", *arguments)

    def begin_transaction(self) -> None:
        self._order = ordered()
        self._step("begin_transaction")
        if self._order.endswith(":produce"):  # only then: a call for each record is dear
            self._left = random.randrange(RECORDS_BEFORE)
            self.produce = self._counted_produce  # type: ignore[assignment, method-assign]

    def flush(self, *arguments: Any) -> int:
        return int(self._step("flush", *arguments))

    def commit_transaction(self, *arguments: Any) -> None:
        if self._order == "during:commit_transaction":
            threading.Timer(random.uniform(0, COMMIT_SECONDS), crash).start()
        self._step("commit_transaction", *arguments)

    def _step(self, call: str, *arguments: Any) -> Any:
        self._at(f"before:{call}")
        result = getattr(super(), call)(*arguments)
        self._at(f"after:{call}")
        return result

    def _counted_produce(self, *arguments: Any) -> None:
        last = self._left == 0
        if last:
            self._at("before:produce")
        super().produce(*arguments)
        if last:
            self.poll(0.05)  # let the record reach the broker
            self._at("after:produce")
        self._left -= 1

    def _at(self, point: str) -> None:
        if self._order == point:
            crash()


class LooseProducer(CrashingProducer):
    """Wrong on purpose: positions go out at once, by a producer without transactions."""

    def __init__(self, properties: dict[str, Any], **named: Any) -> None:
        super().__init__(properties, **named)
        self._loose = Producer({name: properties[name] for name in ("bootstrap.servers", "linger.ms")})

    def begin_transaction(self) -> None:
        super().begin_transaction()
        self.produce = self._split_produce  # type: ignore[assignment, method-assign]

    def _split_produce(self, topic: str, *arguments: Any) -> None:
        if topic.endswith(CHECKPOINTS):
            self._loose.produce(topic, *arguments)
            self._loose.flush(5)
        elif self._order.endswith(":produce"):
            self._counted_produce(topic, *arguments)
        else:
            super().produce(topic, *arguments)


def ordered() -> str:
    """The point at which to crash; empty where none is armed."""
    try:
        return os.readlink(ARMED)  # noqa: PTH115 - asked for each transaction
    except OSError:
        return ""


def crash() -> None:
    """As `kill -9` does; the order is used up."""
    ARMED.unlink(missing_ok=True)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    broken = os.environ.get("BROKEN", "")
    if broken not in ("", "loose-positions", "no-rotation"):
        sys.exit(f"BROKEN={broken} is not known: loose-positions or no-rotation")
    producer = LooseProducer if broken == "loose-positions" else CrashingProducer
    setattr(kafka_clients, "Producer", producer)  # noqa: B010 - the module does not offer it
    if broken == "no-rotation":
        never = functools.partial(TransactionSession, slow_commit_seconds=math.inf)
        setattr(sides, "TransactionSession", never)  # noqa: B010
    cli.main()


if __name__ == "__main__":
    main()
