"""Counts of a reader of committed records during faults: the records, and the longest stall of a partition."""

import threading
import time

from tests.support.follower import Follower

TAKE_SECONDS = 0.02


class Stalls:
    """The longest time between two arrivals on one partition. Pure: `now` is monotonic seconds."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._last: dict[int, float] = {}

    def arrived(self, partition: int, now: float) -> None:
        self.longest = max(self.longest, now - self._last.get(partition, now))
        self._last[partition] = now


class Watch(threading.Thread):
    """Counts the records of some topics, and the stalls of the first one, until `close`. `grows`: see Follower."""

    def __init__(self, bootstrap_servers: str, *topics: str, grows: bool = False) -> None:
        super().__init__(name="watch", daemon=True)
        self.seen = 0
        self.stalls = Stalls()
        self._since_ms = 0
        self._first = topics[0]
        self._closing = threading.Event()
        self._follower = Follower(bootstrap_servers, *topics, grows=grows)

    def run(self) -> None:
        while not self._closing.is_set():
            messages = self._follower.take(TAKE_SECONDS)
            now = time.monotonic()
            counted = [message for message in messages if message.timestamp()[1] >= self._since_ms]
            self.seen += len(counted)
            for partition in {message.partition() or 0 for message in counted if message.topic() == self._first}:
                self.stalls.arrived(partition, now)

    def restart(self, since_ms: int) -> None:
        """Count only answers to events of this time (Unix ms) or later; answers have the time of their events."""
        self._since_ms, self.seen = since_ms, 0

    def close(self) -> None:
        self._closing.set()
        if self.is_alive():
            self.join()
        self._follower.close()
