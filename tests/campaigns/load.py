"""Events at a steady rate, with a journal of what the broker has acknowledged."""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

TICK = 0.01  # seconds between bursts
KEYS = 300
BAD = (b"{", b'{"id": "x"}', b'{"id": "x", "a": "one", "b": 0}', b"\xff\xfe", b"[1, 2]", None)
"""Values that no scorer can score: cut off, without its fields, of another type, not UTF-8, not an object, a tombstone."""


def linear(number: int) -> bytes:
    """An event for the linear test model: a + b = number."""
    return b'{"id": "e%d", "a": %d, "b": 0}' % (number, number % 1_000_000)


class Load(threading.Thread):
    """Writes the events that `make` gives for 0, 1, and so on, until `finish`, or up to `limit`. `rate` is events a second.
    `poison` is the share of events that cannot be scored. The producer waits through whatever befalls the brokers."""

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
        self.written = 0
        self._topic = topic
        self._rate = rate
        self._limit = limit
        self._make = make
        self._enough = threading.Event()
        self._turn = threading.Lock()
        self._paused = 0.0
        self._bootstrap_servers = bootstrap_servers
        self._producer = self._made()

    def _made(self, **more: Any) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self._bootstrap_servers,
                "topic.metadata.refresh.interval.ms": 1_000,  # a partition that is added gets its share
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
        """How many events the brokers have acknowledged."""
        return self.acknowledged.total()

    def run(self) -> None:
        began = time.monotonic()
        bad_due = 0.0
        bad = itertools.cycle(BAD)
        while not self._enough.is_set() and (self._limit is None or self.written < self._limit):
            with self._turn:
                bad_due = self._tick(time.monotonic() - began - self._paused, bad_due, bad)
            self._enough.wait(TICK)

    def _tick(self, seconds: float, bad_due: float, bad: Iterator[bytes | None]) -> float:
        due = int(seconds * self._rate)
        for number in range(self.written, due if self._limit is None else min(due, self._limit)):
            value: bytes | None = self._make(number)
            bad_due += self.poison
            if bad_due >= 1:
                bad_due -= 1
                value = next(bad)
            self._write(value, b"k%d" % (number % KEYS))
            self.written = number + 1
        self._producer.poll(0)
        return bad_due

    def begin_anew(self, between: Callable[[], None], seconds: float = 130.0) -> None:
        """Write on after `between`, with another producer; what was acknowledged before counts no more."""
        with self._turn:
            began = time.monotonic()
            if left := self._producer.flush(seconds):
                raise RuntimeError(f"{left} events were not acknowledged within {seconds:.0f} s")
            between()
            self.acknowledged.clear()
            self.last.clear()
            self._producer = self._made()
            self._paused += time.monotonic() - began

    def finish(self, seconds: float = 130.0) -> None:
        """No more events; returns when each is acknowledged or given up. Raises RuntimeError where that takes longer."""
        self._enough.set()
        self.join()
        if left := self._producer.flush(seconds):
            raise RuntimeError(f"{left} events were not acknowledged within {seconds:.0f} s")

    def _write(self, value: bytes | None, key: bytes) -> None:
        while not self._enough.is_set():
            try:
                self._producer.produce(self._topic, value, key, **self._placed(key))
            except BufferError:
                self._producer.poll(0.1)
            else:
                return

    def _placed(self, _: bytes) -> dict[str, Any]:
        """What else is said of the record of this key: its partition, headers, who hears of it."""
        return {"on_delivery": self._acknowledge}

    def _acknowledge(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed += 1
            return
        partition, offset = message.partition() or 0, message.offset() or 0
        self.acknowledged[partition] += 1
        self.last[partition] = max(offset, self.last.get(partition, -1))
