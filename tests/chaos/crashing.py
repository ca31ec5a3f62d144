"""A transactional producer that kills its process on order.

The environment variable ARM_FILE names a link. Its target is a point, `before:commit_transaction` for instance. At that call
the process group ends as by `kill -9`, and the link is removed. The product has no such switch.
"""

import os
import random
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

ARMED = os.environ.get("ARM_FILE", "/nonexistent")
COMMIT_SECONDS = 0.004
STEPS = (
    "init_transactions",
    "begin_transaction",
    "produce",
    "send_offsets_to_transaction",
    "flush",
    "commit_transaction",
)


class CrashingProducer:
    """A producer that checks for an armed crash before and after each step. It has no reference to itself, so that the inner
    producer ends when a session drops this one."""

    list_topics: Callable[..., Any]
    poll: Callable[..., Any]
    purge: Callable[..., Any]
    abort_transaction: Callable[..., Any]
    produce: Callable[..., Any]

    def __init__(self, producer: Producer) -> None:
        self.handle = getattr(producer, "handle", 0)
        for name in ("list_topics", "poll", "purge", "abort_transaction"):
            setattr(self, name, getattr(producer, name))
        for name in STEPS:
            setattr(self, name, around(getattr(producer, name), name, producer))


def around(call: Callable[..., Any], name: str, producer: Any) -> Callable[..., Any]:
    """Wrap the call of a step with checks for an armed crash."""
    before, during, after = f"before:{name}", f"during:{name}", f"after:{name}"

    def stepped(*arguments: Any, **named: Any) -> Any:
        order = ordered()
        if order == before:
            crash()
        if order == during:
            threading.Timer(random.uniform(0, COMMIT_SECONDS), crash).start()
        result = call(*arguments, **named)
        if ordered() == after:
            if name == "produce":
                producer.poll(0.05)  # let the record reach the broker
            crash()
        return result

    return stepped


def ordered() -> str:
    """Return the point at which to crash; empty if none is armed."""
    try:
        return os.readlink(ARMED)  # noqa: PTH115 - a Path costs ten times as much, and this runs for each record
    except OSError:
        return ""


def crash() -> None:
    """End the process group, the parent of a worker included."""
    Path(ARMED).unlink(missing_ok=True)
    os.killpg(0, signal.SIGKILL)
