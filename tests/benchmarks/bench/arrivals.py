"""When scores become readable: a process of its own that reads a topic read_committed and notes each arrival.

    python -m tests.benchmarks.bench.arrivals BOOTSTRAP_SERVERS TOPIC FILE

Reads until its stdin ends, then writes FILE: a (3, n) array of ids, arrival times (Unix ms) and version numbers (the part of
the version before its first dot). Each half second it prints how many it has seen. Records are decoded only at the end: it
shares its core with the broker.
"""

import gc
import select
import sys
import time
from pathlib import Path

import numpy as np
import orjson
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from publisher.kafka import clients as kafka
from publisher.kafka.clients import KafkaSettings

REPORT_SECONDS = 0.5
MAX_READY = 1_000  # messages that are taken at once if they have arrived


def main() -> None:
    servers, topic, path = sys.argv[1:]
    settings = KafkaSettings(bootstrap_servers=servers)
    consumer = kafka.reader(settings, "bench-arrivals", **{"fetch.wait.max.ms": 10})
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    gc.disable()
    values: list[tuple[bytes, float]] = []
    reported = time.monotonic()
    print(0, flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        messages = consumer.consume(1, 0.05)
        messages += consumer.consume(MAX_READY, 0) if messages else []
        now = time.time() * 1_000
        values += [(message.value() or b"{}", now) for message in messages if message.error() is None]
        if time.monotonic() - reported > REPORT_SECONDS:
            reported = time.monotonic()
            print(len(values), flush=True)
    records = [(orjson.loads(value), now) for value, now in values]
    rows = [(int(record["id"]), now, int(record["version"].partition(".")[0])) for record, now in records]
    with Path(path).open("wb") as file:
        np.save(file, np.array(rows, np.float64).reshape(-1, 3).T)


if __name__ == "__main__":
    main()
