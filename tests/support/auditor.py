"""A second implementation of the audit, with a plain Kafka client and one byte for each offset.

This module shares no code with the product. Tests compare its counts with the counts of the product's audit, so that a mistake
in one of the two shows.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from urllib.parse import unquote

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

Place = tuple[str, int, int]


class Column:
    """A number from 0 to 255 for each (topic, partition, offset); 0 if no number was set. Larger numbers are stored as 255."""

    def __init__(self) -> None:
        self.rows: defaultdict[tuple[str, int], bytearray] = defaultdict(bytearray)

    def set(self, place: Place, value: int) -> None:
        topic, partition, offset = place
        row = self.rows[topic, partition]
        if offset >= len(row):
            row.extend(bytes(offset + 1 - len(row)))
        row[offset] = min(value, 255)

    def get(self, place: Place) -> int:
        topic, partition, offset = place
        row = self.rows[topic, partition]
        return row[offset] if offset < len(row) else 0

    def beside(self, other: "Column") -> Iterator[tuple[int, int]]:
        for key in self.rows.keys() | other.rows.keys():
            row, other_row = self.rows[key], other.rows[key]
            length = max(len(row), len(other_row))
            yield from zip(row.ljust(length, b"\0"), other_row.ljust(length, b"\0"), strict=True)


def audit(bootstrap_servers: str, events: str, scores: str, dead: str | None = None, since_ms: int = 0) -> dict[str, int]:
    """Read all committed records and return the counts of events and of faults by name.

    `version_regressions` counts scores that break one of two rules: within a partition, channel revisions follow each other in
    the order of their first appearance; and within a revision, one version answers in each role.

    An answer has the timestamp of its event. Answers with a timestamp before `since_ms` (Unix ms) are ignored, because they
    belong to events of a deleted topic.
    """
    inputs, answers, versions = Column(), Column(), Column()
    names: list[tuple[int, str | None]] = []
    answering: dict[tuple[int, str], str] = {}
    other = 0
    last: dict[tuple[int | None, str, int], int] = {}
    out_of_order = 0
    for message in read(bootstrap_servers, events):
        inputs.set((events, message.partition() or 0, message.offset() or 0), 1)
    for message in answers_of(bootstrap_servers, scores, since_ms):
        record = json.loads(message.value() or b"")
        topic, partition, offset = place = tuple(record["source"][name] for name in ("topic", "partition", "offset"))
        answers.set(place, answers.get(place) + 1)
        if record["status"] == "scored":
            revision, version = record["revision"], record["version"]
            name = (revision, None if revision else version)  # a tag that is no channel has no revisions
            if name not in names:
                names.append(name)
            versions.set(place, names.index(name) + 1)
            other += revision and answering.setdefault((revision, record["role"]), version) != version
        lane = (message.partition(), topic, partition)
        out_of_order += offset < last.get(lane, -1)
        last[lane] = max(offset, last.get(lane, -1))
    for message in answers_of(bootstrap_servers, dead, since_ms) if dead else ():
        for place in sources(message):
            answers.set(place, answers.get(place) + 1)
    counts = {"inputs": 0, "missing": 0, "duplicates": 0, "phantoms": 0}
    for written, answered in inputs.beside(answers):
        counts["inputs"] += written
        counts["missing"] += written > answered
        counts["duplicates"] += max(0, answered - 1)
        counts["phantoms"] += answered > 0 and not written
    return {**counts, "out_of_order": out_of_order, "version_regressions": regressions(versions) + other}


def answers_of(bootstrap_servers: str, topic: str, since_ms: int) -> Iterator[Message]:
    """Yield the committed answers to events with a timestamp of at least `since_ms` (Unix ms)."""
    return (message for message in read(bootstrap_servers, topic) if message.timestamp()[1] >= since_ms)


def regressions(versions: Column) -> int:
    """Count the scores of a version after the first score of a later version in the same partition."""
    count = 0
    for row in versions.rows.values():
        order: list[int] = []
        for version in row:
            if version and version not in order:
                order.append(version)
            count += bool(version) and version != order[-1]
    return count


def sources(message: Message) -> list[Place]:
    """Return the positions of the events that a dead letter replaces: one event, or all events of a batch."""
    headers = message.headers()
    assert isinstance(headers, list)
    place = dict(headers)["dead.source"]
    assert isinstance(place, bytes)
    _, topic, partition, last = place.decode("ascii").split("/")
    name, first = headers[-1]  # an event can have this header too, but the dead letter's headers come last
    offsets = range(int(first) if name == "dead.first" and first else int(last), int(last) + 1)
    return [(unquote(topic), int(partition), offset) for offset in offsets]


def read(bootstrap_servers: str, topic: str) -> Iterator[Message]:
    """Yield all committed records of a topic, from the start of each partition until its end is reached.

    The message size is not limited, because a compressed batch may expand to any size.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "second-auditor",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "receive.message.max.bytes": 2_147_483_647,
        }
    )
    try:
        partitions = set(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        while partitions:
            message = consumer.poll(30)
            assert message is not None, f"nothing more of {topic} within 30 s"
            if (error := message.error()) is None:
                yield message
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error.str()
                partitions.discard(message.partition() or 0)
    finally:
        consumer.close()
