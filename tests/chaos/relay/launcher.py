"""`publisher` with producers that crash on order (`crashing.py`), or with a part that is wrong on purpose.

The environment variable BROKEN is `loose-positions` (checkpoints are written beside the transaction, not in it) or
`no-rotation` (a producer stays in use after a slow commit). The product has no such switch.
"""

import functools
import math
import os
from typing import Any

from confluent_kafka import Producer

from publisher import cli
from publisher.relay import clusters
from publisher.relay.clients import create_destination_producer
from publisher.relay.settings import RelaySettings
from publisher.transactions.exactly_once import TransactionSession
from tests.chaos.crashing import CrashingProducer

BROKEN = os.environ.get("BROKEN", "")


def crashing(settings: RelaySettings, *arguments: Any) -> CrashingProducer:
    producer = CrashingProducer(create_destination_producer(settings, *arguments))
    if BROKEN == "loose-positions":
        loosen(producer, settings)
    return producer


def loosen(producer: CrashingProducer, settings: RelaySettings) -> None:
    """Wrong on purpose: positions are written at once, by a producer without transactions."""
    inside, outside = producer.produce, Producer({"bootstrap.servers": settings.destination.bootstrap_servers})

    def split(topic: str, *arguments: Any, **named: Any) -> None:
        if topic == settings.checkpoint_topic:
            outside.produce(topic, *arguments, **named)
            outside.flush(5)
        else:
            inside(topic, *arguments, **named)

    producer.produce = split


if __name__ == "__main__":
    setattr(clusters, "create_destination_producer", crashing)  # noqa: B010 - the command has no option for it
    if BROKEN == "no-rotation":
        setattr(clusters, "TransactionSession", functools.partial(TransactionSession, slow_commit_seconds=math.inf))  # noqa: B010
    cli.main()
