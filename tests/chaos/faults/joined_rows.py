"""Rows of a table that change while faults happen, and the check of the joined values in the feature log.

Every score must have one record in the feature log. The record must have the score's version, a row that was written for the
event's key, and inputs from which the score is recomputed.
"""

import json
import random
import sys
import threading
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from typing import Any

import numpy as np
from confluent_kafka import KafkaError, Message, Producer

from tests.chaos.load import KEYS
from tests.integration.scorer.rig import Rig
from tests.support import auditor

TABLE = "customers"
FIELD = f"{TABLE}.b"
UPDATES = 1_000.0
"""Updates of rows a second."""
MAX_LAG_SECONDS = 5.0
TICK = 0.01
FLUSH_SECONDS = 120.0
COUNTED = {
    "unlogged": "scores without a feature record",
    "logged_twice": "further feature records of a score",
    "logged_without_score": "feature records without a score",
    "other_version": "records of another version than the score's",
    "other_inputs": "records with inputs that were never written for the event",
    "other_score": "records from which another score follows",
    "unjoined": "dead letters because of a missing row",
    "too_old": "scores from a row that was replaced more than MAX_LAG_SECONDS before, if `when_behind` is wait",
}


class RowUpdates(threading.Thread):
    """Writes a row for each key of the load, then updates of random rows at a steady rate until `finish`.

    The value `b` of a row grows with each update. `written` has, for each key, the values and the times (Unix ms) of its rows.
    """

    def __init__(self, bootstrap_servers: str, topic: str, seed: int) -> None:
        super().__init__(name="row updates", daemon=True)
        self.written: defaultdict[bytes, list[tuple[int, int]]] = defaultdict(list)
        self._topic = topic
        self._random = random.Random(seed)
        self._enough = threading.Event()
        self._count = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "message.timeout.ms": 120_000,
                "linger.ms": 5,
                "partitioner": "murmur2_random",
                "log_level": 0,
                "error_cb": lambda _: None,
            }
        )

    def fill(self) -> None:
        """Write the first row of every key, and wait for the broker."""
        for number in range(KEYS):
            self._write(b"k%d" % number)
        if self._producer.flush(FLUSH_SECONDS):
            raise RuntimeError("the first rows of the table were not acknowledged")

    def run(self) -> None:
        due, ticked = 0.0, time.monotonic()
        while not self._enough.wait(TICK):
            now = time.monotonic()
            due += min(now - ticked, 1.0) * UPDATES
            ticked = now
            while due >= 1 and not self._enough.is_set():
                due -= 1
                self._write(b"k%d" % self._random.randrange(KEYS))
            self._producer.poll(0)

    def finish(self) -> None:
        """End the updates, and wait until each is acknowledged."""
        self._enough.set()
        self.join()
        if unacknowledged := self._producer.flush(FLUSH_SECONDS):
            raise RuntimeError(f"{unacknowledged} updates of rows were not acknowledged")

    @property
    def updates(self) -> int:
        """The number of rows that the brokers have acknowledged."""
        return sum(map(len, self.written.values()))

    def _write(self, key: bytes) -> None:
        self._count += 1
        value = b'{"b": %d}' % self._count
        while True:
            try:
                self._producer.produce(self._topic, value, key, on_delivery=self._acknowledge)
            except BufferError:
                self._producer.poll(0.1)
            else:
                return

    def _acknowledge(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise RuntimeError(f"an update of a row was not written: {error}")
        row = json.loads(message.value() or b"")["b"], message.timestamp()[1]
        self.written[message.key() or b""].append(row)


def count(
    rig: Rig, updates: RowUpdates, factors: dict[str, float], since_ms: int, *, waits: bool
) -> tuple[dict[str, int], float]:
    """Compare the scores with the feature log and the written rows.

    Args:
        rig: the topics.
        updates: the written rows.
        factors: the factor of each version; a score is factor * (a + b).
        since_ms: scores of older events (Unix ms) are not counted.
        waits: whether a score from a row that was replaced long before counts as a fault.

    Returns:
        The counts of COUNTED, and the longest time between the replacement of a row and a score from it, in seconds.
    """
    counts: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))
    logged: dict[tuple[str, int, int], dict[str, Any]] = {}
    for message in auditor.read(rig.bootstrap_servers, f"{rig.name}.features"):
        record = json.loads(message.value() or b"")
        if record["event_ms"] >= since_ms:
            place = _place(record)
            counts["logged_twice"] += place in logged
            logged[place] = record
    oldest_ms = 0
    for message in auditor.answers_of(rig.bootstrap_servers, rig.scores_topic, since_ms):
        score = json.loads(message.value() or b"")
        if score["status"] != "scored":
            continue
        record = logged.pop(_place(score), {})
        if not record:
            counts["unlogged"] += 1
            continue
        counts["other_version"] += (record["version"], record["revision"]) != (score["version"], score["revision"])
        rows = updates.written[message.key() or b""]
        a, b = record["inputs"]["a"], record["inputs"][FIELD]
        after = bisect_right(rows, (b, 1 << 62))
        if a != int(score["id"][1:]) % 1_000_000 or not after or rows[after - 1][0] != b:
            counts["other_inputs"] += 1
            print(
                f"inputs that were never written: {record}; score {score}; rows near {rows[max(0, after - 3) : after + 3]}",
                file=sys.stderr,
            )
        expected = np.float32(factors[score["version"]]) * (np.float32(a) + np.float32(b))
        counts["other_score"] += not np.isclose(score["score"], expected, rtol=1e-5)
        if after < len(rows):
            oldest_ms = max(oldest_ms, score["scored_ms"] - rows[after][1])
            counts["too_old"] += waits and score["scored_ms"] - rows[after][1] > MAX_LAG_SECONDS * 1_000
    counts["logged_without_score"] = len(logged)
    for message in auditor.answers_of(rig.bootstrap_servers, rig.dead_topic, since_ms):
        counts["unjoined"] += TABLE in str(dict(message.headers() or ()).get("dead.error"))
    return dict(counts), oldest_ms / 1_000


def _place(record: dict[str, Any]) -> tuple[str, int, int]:
    source = record["source"]
    return source["topic"], source["partition"], source["offset"]
