"""A live consumer of the score topic, which records when consumers with read_committed receive the scores."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from confluent_kafka import OFFSET_BEGINNING, TopicPartition
from numpy.typing import NDArray

from publisher.kafka import clients as kafka
from publisher.kafka.clients import KafkaSettings
from publisher.runtime.context import now_ms

POLL_SECONDS = 0.05


class _Record(msgspec.Struct):
    version: str


@dataclass(slots=True)
class ReceivedScores:
    """The received scores in the order of their arrival. Times are Unix ms.

    Attributes:
        sent: The timestamp of each score's event.
        received: When each score was received.
    """

    sent: list[int] = field(default_factory=list)
    received: list[int] = field(default_factory=list)
    newest: dict[int, tuple[str, int, int]] = field(default_factory=dict)
    """By output partition, the last score: its version, when its event was sent, and when it was received."""

    def latencies(self, since: float = 0, until: float = float("inf")) -> NDArray[np.float64]:
        """Return the latencies (ms) of the scores of events that were sent at or after `since` and before `until` (Unix ms)."""
        count = len(self.received)
        sent = np.array(self.sent[:count], np.float64)
        latency = np.array(self.received[:count], np.float64) - sent
        return latency[(sent >= since) & (sent < until)]


class ScoreReader:
    """Read the score topic from its start, in a thread that runs until `close`."""

    def __init__(self, settings: KafkaSettings, topic: str, partitions: int, arrivals: ReceivedScores) -> None:
        self.arrivals = arrivals
        self._consumer = kafka.reader(settings, "demo.live", **{"fetch.wait.max.ms": 10})
        self._consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)])
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._read, name="live-reader", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the thread and close the consumer."""
        self._closing.set()
        self._thread.join()
        self._consumer.close()

    def _read(self) -> None:
        decode = msgspec.json.Decoder(_Record).decode
        while not self._closing.is_set():
            first = self._consumer.poll(POLL_SECONDS)
            if first is None:
                continue
            messages = [m for m in (first, *self._consumer.consume(5_000, 0)) if m.error() is None]
            now = now_ms()
            for message in messages:
                sent = message.timestamp()[1]
                self.arrivals.sent.append(sent)
                self.arrivals.newest[message.partition() or 0] = decode(message.value() or b"").version, sent, now
            self.arrivals.received.extend([now] * len(messages))


def percentiles(latencies: NDArray[np.float64], points: Sequence[float]) -> list[float]:
    """Return percentiles in ms, rounded to one decimal place; NaN without latencies."""
    if not len(latencies):
        return [float("nan")] * len(points)
    return [round(float(value), 1) for value in np.percentile(latencies, points)]
