"""While something is away a scorer shows that it is alive, hears a stop, and asks again for as long as it takes."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

from confluent_kafka import KafkaError

from publisher.errors import UNREACHABLE, Aborted, Fatal
from publisher.kafka.clients import ErrorWatch, KafkaSettings
from publisher.kafka.connection import connect
from publisher.kafka.error_codes import NOBODY_THERE
from publisher.runtime.abandonable_call import call_in_thread
from publisher.runtime.dependencies import BROKERS, DependencyUnavailable, Outages

LOOK_SECONDS = 5.0  # between looks at the brokers while something is waited for
ANSWER_SECONDS = 3.0
AGAIN_SECONDS = 1.0
STOP_SECONDS = 0.1  # how late a stop is heard

T = TypeVar("T")


class DependencyWaiter:
    """For one scorer. The owner thread calls it now and then while it waits for brokers, and it calls `alive`.

    A thread of its own looks whether any broker answers: `outages` hear of it, and the owner thread of a broker that refuses
    this client, which no waiting cures.
    """

    def __init__(
        self, kafka: KafkaSettings, client_id: str, alive: Callable[[], object], outages: Outages, stopping: threading.Event
    ) -> None:
        self._kafka = kafka
        self._client_id = client_id
        self._alive = alive
        self._outages = outages
        self._stopping = stopping
        self._next_look = time.monotonic() + LOOK_SECONDS
        self._looking: Future[None] | None = None
        self._refused: Fatal | None = None

    def __call__(self) -> None:
        """Raises Aborted where a stop is asked for, Fatal where a broker refuses this client."""
        self._alive()
        now = time.monotonic()
        if self._stopping.is_set():
            raise Aborted("asked to stop while brokers are away; the next owner decides what is in doubt")
        if self._refused is not None:
            raise self._refused
        if now >= self._next_look:
            self._next_look = now + LOOK_SECONDS
            self.look()

    def look(self) -> None:
        """See to it that somebody looks until a broker answers."""
        if self._looking is None or self._looking.done():
            self._looking = call_in_thread("brokers", self._look)

    def hear(self, watch: ErrorWatch) -> Callable[[KafkaError], None]:
        """What a client is given to tell its errors: `watch`, and a look where it has lost every broker."""

        def told(error: KafkaError) -> None:
            watch(error)
            if error in NOBODY_THERE:
                self.look()

        return told

    def repeated(self, step: Callable[[], T]) -> T:
        """The outcome of a step of the start, which is made again while it meets something that is away.

        Raises Aborted at once where a stop is asked for, and Fatal for everything that a person has to change.
        """
        while True:
            future = call_in_thread("start", step)
            while not wait([future], STOP_SECONDS).done:
                self()
            try:
                outcome = future.result()
            except Fatal as error:
                if error.exit_code != UNREACHABLE:
                    raise
                away = error.what if isinstance(error, DependencyUnavailable) else BROKERS
                self._outages.begin(away, error)
                self._stopping.wait(AGAIN_SECONDS)
                self()
            else:
                for what in list(self._outages.away):
                    self._outages.end(what)
                return outcome

    def _look(self) -> None:
        while not self._stopping.is_set():
            try:
                connect(self._kafka, self._client_id, ANSWER_SECONDS)
            except Fatal as error:
                if error.exit_code != UNREACHABLE:
                    self._refused = error
                    return
                self._outages.begin(BROKERS, error)
                self._stopping.wait(AGAIN_SECONDS)
            else:
                self._outages.end(BROKERS)
                return
