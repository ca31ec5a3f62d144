"""What the owner thread does while brokers are away: it shows that it is alive, and waits for no more than can come back."""

import time
from collections.abc import Callable

from publisher.connection import connect
from publisher.errors import Aborted, Fatal
from publisher.kafka import KafkaSettings
from scorer.observe.progress import Progress

LOOK_SECONDS = 5.0  # between looks whether a broker is there that refuses us, which no waiting cures
ANSWER_SECONDS = 2.0
UNREACHABLE = 4


def patience(kafka: KafkaSettings, client_id: str, progress: Progress, stopping: Callable[[], bool]) -> Callable[[], None]:
    """To be called now and then: raises Aborted where a stop is asked for, Fatal where a broker refuses this client."""
    next_look = time.monotonic() + LOOK_SECONDS

    def waiting() -> None:
        nonlocal next_look
        progress.heartbeat = now = time.monotonic()
        if stopping():
            raise Aborted("asked to stop while brokers are away; the next owner decides what is in doubt")
        if now < next_look:
            return
        try:
            connect(kafka, client_id, ANSWER_SECONDS)
        except Fatal as error:
            if error.exit_code != UNREACHABLE:
                raise
        next_look = time.monotonic() + LOOK_SECONDS

    return waiting
