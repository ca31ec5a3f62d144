"""The second auditor: plain sets and dictionaries, a plain client, and not a line in common with the product.

What the product's own audit says is held against this one, so that a mistake in either shows.
"""

import json
from collections import Counter
from urllib.parse import unquote

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

Place = tuple[str, int, int]


def audit(bootstrap_servers: str, events: str, scores: str, dead: str | None = None) -> dict[str, int]:
    """Read everything that is committed, and count. Versions of a partition must follow in the order of first appearance."""
    inputs = {(events, m.partition(), m.offset()) for m in read(bootstrap_servers, events)}
    answers: Counter[Place] = Counter()
    last: dict[tuple[int | None, str, int], int] = {}
    versions: dict[Place, str] = {}
    out_of_order = 0
    for message in read(bootstrap_servers, scores):
        record = json.loads(message.value() or b"")
        topic, partition, offset = (record["source"][name] for name in ("topic", "partition", "offset"))
        answers[topic, partition, offset] += 1
        if record["status"] == "scored":
            versions[topic, partition, offset] = record["version"]
        lane = (message.partition(), topic, partition)
        out_of_order += offset < last.get(lane, -1)
        last[lane] = max(offset, last.get(lane, -1))
    answers.update(source(m) for m in (read(bootstrap_servers, dead) if dead else []))
    return {
        "inputs": len(inputs),
        "missing": len(inputs - set(answers)),
        "duplicates": sum(count - 1 for count in answers.values()),
        "phantoms": len(set(answers) - inputs),
        "out_of_order": out_of_order,
        "version_regressions": regressions(versions),
    }


def regressions(versions: dict[Place, str]) -> int:
    """Scores whose version had already been followed by another one, partition by partition."""
    count = 0
    seen: dict[tuple[str, int], list[str]] = {}
    for (topic, partition, _), version in sorted(versions.items()):
        order = seen.setdefault((topic, partition), [])
        if version not in order:
            order.append(version)
        count += version != order[-1]
    return count


def source(message: Message) -> Place:
    """The event that a dead letter was."""
    headers = message.headers()
    assert isinstance(headers, list)
    place = dict(headers)["dead.source"]
    assert isinstance(place, bytes)
    _, topic, partition, offset = place.decode("ascii").split("/")
    return unquote(topic), int(partition), int(offset)


def read(bootstrap_servers: str, topic: str) -> list[Message]:
    """All committed records of a topic, from the start to the end that each partition has when it is reached."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "second-auditor",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        partitions = set(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        records = []
        while partitions:
            message = consumer.poll(30)
            assert message is not None, f"nothing more of {topic} within 30 s"
            if (error := message.error()) is None:
                records.append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error.str()
                partitions.discard(message.partition() or 0)
        return records
    finally:
        consumer.close()
