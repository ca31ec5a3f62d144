"""Events at a steady rate, with a record of the acknowledged ones."""

import itertools
import math
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

TICK = 0.01  # seconds between bursts
KEYS = 300
BAD = (b"{", b'{"id": "x"}', b'{"id": "x", "a": "one", "b": 0}', b"\xff\xfe", b"[1, 2]", None)
"""Values that no scorer can score: cut off, without its fields, of another type, not UTF-8, not an object, a tombstone."""
NOT_IN_METADATA = (KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
"""Errors of a client whose metadata does not yet include a new topic or partition."""


def linear(number: int) -> bytes:
    """An event for the linear test model: a + b = number."""
    return b'{"id": "e%d", "a": %d, "b": 0}' % (number, number % 1_000_000)


class Load(threading.Thread):
    """Writes the events that `make` gives for 0, 1, and so on, until `finish`, or up to `limit`. `rate` (events a second) and
    `poison` (the share of events that cannot be scored) may be changed. The producer waits for unavailable brokers."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        rate: float,
        limit: int | None = None,
        make: Callable[[int], bytes] = linear,
    ) -> None:
        super().__init__(name="load", daemon=True)
        self.acknowledged: Counter[int] = Counter()
        self.last: dict[int, int] = {}
        self.failed = 0
        self.poison = 0.0
        self.rate = rate
        self.written = 0
        self._topic = topic
        self._limit = math.inf if limit is None else limit
        self._make = make
        self._bad = itertools.cycle(BAD)
        self._bad_share = self._expected = 0.0
        self._ticked = math.inf
        self._enough = threading.Event()
        self._turn = threading.Lock()
        self._bootstrap_servers = bootstrap_servers
        self._producer = self._create_producer()

    def _create_producer(self, **more: Any) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self._bootstrap_servers,
                "topic.metadata.refresh.interval.ms": 1_000,  # so that new partitions receive events
                "enable.idempotence": True,
                "message.timeout.ms": 120_000,
                "linger.ms": 5,
                "partitioner": "murmur2_random",
                "log_level": 0,
                "error_cb": lambda _: None,
                **more,
            }
        )

    @property
    def events(self) -> int:
        """The number of events that the brokers have acknowledged."""
        return self.acknowledged.total()

    def run(self) -> None:
        self._ticked = time.monotonic()
        while not self._enough.is_set() and self.written < self._limit:
            with self._turn:
                self._tick(time.monotonic())
            self._enough.wait(TICK)

    def _tick(self, now: float) -> None:
        self._expected += (now - self._ticked) * self.rate
        self._ticked = now
        for number in range(self.written, int(min(self._expected, self._limit))):
            value: bytes | None = self._make(number)
            self._bad_share += self.poison
            if self._bad_share >= 1:
                self._bad_share -= 1
                value = next(self._bad)
            self._write(value, self._key(number))
            self.written = number + 1
        self._producer.poll(0)

    def restart(self, between: Callable[[], None], seconds: float = 130.0) -> None:
        """Call `between`, then continue with a new producer and count acknowledged events from zero."""
        with self._turn:
            if unacknowledged := self._producer.flush(seconds):
                raise RuntimeError(f"{unacknowledged} events were not acknowledged within {seconds:.0f} s")
            between()
            self.acknowledged.clear()
            self.last.clear()
            self._producer = self._create_producer()
            self._ticked = time.monotonic()

    def finish(self, seconds: float = 130.0) -> None:
        """End the load, and wait until each event is acknowledged or failed. Raises RuntimeError after `seconds`."""
        self._enough.set()
        self.join()
        if unacknowledged := self._producer.flush(seconds):
            raise RuntimeError(f"{unacknowledged} events were not acknowledged within {seconds:.0f} s")

    def _key(self, number: int) -> bytes | None:
        """Return the key of the event with this number."""
        return b"k%d" % (number % KEYS)

    def _write(self, value: bytes | None, key: bytes | None) -> None:
        while not self._enough.is_set():
            try:
                self._producer.produce(self._topic, value, key, **self._delivery(key))
            except (BufferError, KafkaException) as error:
                if isinstance(error, KafkaException) and error.args[0].code() not in NOT_IN_METADATA:
                    raise
                self._producer.poll(0.1)
            else:
                return

    def _delivery(self, _: bytes | None) -> dict[str, Any]:
        """Return further arguments of `produce` for this key: the partition, the headers and the delivery callback."""
        return {"on_delivery": self._acknowledge}

    def _acknowledge(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed += 1
            return
        partition, offset = message.partition() or 0, message.offset() or 0
        self.acknowledged[partition] += 1
        self.last[partition] = max(offset, self.last.get(partition, -1))
