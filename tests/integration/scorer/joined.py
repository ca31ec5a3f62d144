"""A rig whose scorers join events with the table `customers`, and the writer of the table's rows."""

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from tests.integration.scorer.rig import MakeRig, Rig, until
from tests.support import models

MAX_BYTES = 12 << 20
"""The largest record that a `RowWriter` writes."""


def signature(*columns: str, table: str = "customers", default: float | None = 0.0) -> dict[str, Any]:
    """Return a signature with the event's field `a` and these columns of the table; without a default they are required."""
    optional = {} if default is None else {"default": default}
    joined = [{"name": f"{table}.{column}", "from": f"table:{table}", **optional} for column in columns]
    return {"inputs": [{"tensor": "x", "dtype": "float32", "fields": ["a", *joined]}], "output": {"tensor": "y"}}


def package(folder: Path, factor: float, *columns: str, **changes: Any) -> Path:
    """Write a package with score = factor * (a + the columns); return its folder."""
    width = 1 + len(columns)
    return models.package(folder, lambda path: models.linear(path, factor, width), signature(*columns, **changes))


class RowWriter:
    """Writes the rows of a table, to the partitions that `scorer emit` uses for events with the same key."""

    def __init__(self, rig: Rig, topic: str) -> None:
        self._topic = topic
        properties: dict[str, Any] = {"bootstrap.servers": rig.bootstrap_servers, "partitioner": "murmur2_random"}
        self._producer = Producer(properties | {"message.max.bytes": MAX_BYTES, "linger.ms": 5, "log_level": 0})

    def put(self, rows: Iterable[tuple[str | bytes | None, Any]]) -> None:
        """Write rows by key: JSON values, bytes as they are, and None as a tombstone."""
        for key, row in rows:
            value = row if row is None or isinstance(row, bytes) else json.dumps(row).encode()
            self._producer.produce(self._topic, value, key)
            self._producer.poll(0)
        assert self._producer.flush(60) == 0


class JoinedRig:
    """A rig with the table `customers`, which has the topic `topic`, version 1.0.0 (2 * (a + bonus)) and a writer of rows."""

    def __init__(self, make_rig: MakeRig, *, partitions: int = 4, **table: Any) -> None:
        self.rig = make_rig()
        self.topic = f"{self.rig.name}.customers"
        self.rig.configure(tables={"customers": {"topic": self.topic, **table}})
        self.rig.push(package(self.rig.folder / "1.0.0", 2.0, "bonus"), "1.0.0")
        self.rig.promote("1.0.0")
        self.rig.create(partitions)
        self.rows = RowWriter(self.rig, self.topic)
        self._numbers = itertools.count()

    def emit(self, *events: dict[str, Any]) -> list[str]:
        """Write events, each with a new id; return the ids."""
        ids = [f"e{next(self._numbers)}" for _ in events]
        self.rig.emit([{"id": id_, **event} for id_, event in zip(ids, events, strict=True)])
        return ids

    def scores(self, *ids: str) -> list[Any]:
        """Wait for the scores of these events, and return them in this order."""
        scores: dict[str, Any] = {}

        def are_scored() -> bool:
            scores.update({record["id"]: record["score"] for record in self.rig.scores()})
            return scores.keys() >= set(ids)

        until(are_scored, "the scores")
        return [scores[id_] for id_ in ids]

    def score(self, **event: Any) -> Any:
        """Return the score of a new event with these fields."""
        return self.scores(*self.emit(event))[0]

    def wait_for_score(self, score: float, **event: Any) -> None:
        """Wait until a new event with these fields gets this score: updates of the table are seen after a moment."""
        until(lambda: self.score(**event) == score, f"the score {score}")
