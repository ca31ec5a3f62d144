"""When scores become readable: a process of its own that reads a topic read_committed and notes each arrival.

    python -m tests.benchmarks.bench.arrivals BOOTSTRAP_SERVERS TOPIC FILE

Reads until its stdin ends, then writes FILE: a (3, n) array of ids, arrival times (Unix ms) and version numbers (the part of
the version before its first dot). Each half second it prints how many it has seen.
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

TELL_SECONDS = 0.5


def main() -> None:
    servers, topic, path = sys.argv[1:]
    settings = KafkaSettings(bootstrap_servers=servers)
    consumer = kafka.reader(settings, "bench-arrivals", **{"fetch.wait.max.ms": 10})
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    gc.disable()
    rows: list[tuple[int, float, int]] = []
    told = time.monotonic()
    print(0, flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        for message in consumer.consume(1, 0.05):
            if message.error() is None:
                now = time.time() * 1_000
                record = orjson.loads(message.value() or b"{}")
                rows.append((int(record["id"]), now, int(record["version"].partition(".")[0])))
        if time.monotonic() - told > TELL_SECONDS:
            told = time.monotonic()
            print(len(rows), flush=True)
    with Path(path).open("wb") as file:
        np.save(file, np.array(rows, np.float64).reshape(-1, 3).T)


if __name__ == "__main__":
    main()
