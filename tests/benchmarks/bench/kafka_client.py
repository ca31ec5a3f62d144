"""The limit of the bus: the cost of consume and produce alone, with the client settings of the scorer.

Reads a topic in batches, then writes as many records of a score record's size in transactions of one batch each. The figures
are CPU microseconds per event of the calling thread, and of the process, which includes the client's threads.

    python -m tests.benchmarks.bench.kafka_client BOOTSTRAP_SERVERS SOURCE TARGET EVENTS [--batch 4096]
"""

import argparse
import json
import time
import uuid
from collections.abc import Callable
from itertools import cycle

from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from publisher.kafka import clients as kafka
from publisher.kafka.clients import KafkaSettings

VALUE = b'{"id":"1000000","score":0.123456,' + b"p" * 320 + b"}"  # a score record with its provenance
BATCH = 4_096
WAIT_SECONDS = 10.0
PRODUCERS = 3
PATIENCE_SECONDS = 120.0


def consume(settings: KafkaSettings, topic: str, events: int, batch: int) -> int:
    """Read `events` events of a topic and all their columns, as intake does; return their number."""
    consumer = kafka.consumer(settings, "bench", f"bench-{uuid.uuid4().hex}", lambda _: None, lambda *_: None)
    partitions = consumer.list_topics(topic, timeout=WAIT_SECONDS).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    count, deadline = 0, time.monotonic() + PATIENCE_SECONDS
    while count < events and time.monotonic() < deadline:
        first = consumer.poll(0.1)
        messages = [first, *consumer.consume(batch - 1, 0)] if first is not None else []
        for read in ("topic", "partition", "offset", "key", "value", "timestamp"):
            _ = [getattr(message, read)() for message in messages]
        count += len(messages)
    consumer.close()
    return count


def produce(settings: KafkaSettings, topic: str, events: int, batch: int) -> int:
    """Write `events` records in transactions of `batch`, by producers in turn, as a session does; return their number."""
    name = f"bench-{uuid.uuid4().hex}"
    pool = [kafka.transactional_producer(settings, f"{name}.{number}", "bench") for number in range(PRODUCERS)]
    for producer in pool:
        producer.init_transactions(WAIT_SECONDS)
    width = len(pool[0].list_topics(topic, timeout=WAIT_SECONDS).topics[topic].partitions)
    for start, producer in zip(range(0, events, batch), cycle(pool)):
        producer.begin_transaction()
        for number in range(start, min(events, start + batch)):
            producer.produce(topic, VALUE, b"k1", number % width, timestamp=1_700_000_000_000)
        producer.commit_transaction(WAIT_SECONDS)
    return events


def spent(work: Callable[[], int]) -> dict[str, float]:
    """Return the CPU microseconds per event of the thread and of the process, and the events per second."""
    began, thread, process = time.perf_counter(), time.thread_time(), time.process_time()
    events = max(work(), 1)
    return {
        "thread_us": round((time.thread_time() - thread) / events * 1e6, 3),
        "process_us": round((time.process_time() - process) / events * 1e6, 3),
        "events_per_s": round(events / (time.perf_counter() - began)),
        "events": events,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bench.kafka_client")
    parser.add_argument("bootstrap_servers")
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("events", type=int)
    parser.add_argument("--batch", type=int, default=BATCH)
    o = parser.parse_args()
    settings = KafkaSettings(bootstrap_servers=o.bootstrap_servers)
    read = spent(lambda: consume(settings, o.source, o.events, o.batch))
    written = spent(lambda: produce(settings, o.target, o.events, o.batch))
    print(json.dumps({"consume": read, "produce": written, "batch": o.batch}))


if __name__ == "__main__":
    main()
