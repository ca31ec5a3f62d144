"""The cost of a table: restore from a broker, memory of a row, and look-ups by batch size.

    python -m tests.benchmarks.bench.tables [--json] [--rows 1000000] [--partitions 6] [--rounds 3]

A row is JSON with five numbers of six places, and has a key of 17 bytes. The restore is that of a worker: one process reads the
topic and decodes the columns. Compare the CPU time of the process, because other load hardly changes it.
"""

import argparse
import contextlib
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from model_registry.package.signature import InputField, Output, Signature, TensorInput
from publisher.runtime.malloc_tuning import limit_malloc_arenas
from scorer.consumer.table_source import KafkaTableSource
from scorer.decoding.table_rows import row_decoder_factory
from scorer.native.byte_columns import ByteColumn
from scorer.settings import Settings
from scorer.tables.tables import Tables
from tests.support import shared_broker

TOPIC = "table-restore"
BATCHES = (4_096, 512, 64)
FIELDS = tuple(
    InputField(f"rows.f{number}", "float32", required=False, default=0.0, source="table:rows") for number in range(5)
)
SIGNATURE = Signature((TensorInput("x", "float32", FIELDS),), (Output(None, "y"),))
POLL_SECONDS = 0.02
FLUSH_SECONDS = 600


def key(number: int) -> bytes:
    return b"customer-%08d" % number


def rows(count: int) -> Iterator[tuple[bytes, bytes]]:
    """Return the keys and values of rows."""
    drawn = np.random.default_rng(1).random((count, len(FIELDS)))
    for number, values in enumerate(drawn.tolist()):
        yield key(number), b'{"f0":%.6f,"f1":%.6f,"f2":%.6f,"f3":%.6f,"f4":%.6f}' % tuple(values)


def fill(bootstrap_servers: str, topic: str, count: int, partitions: int) -> int:
    """Create a compacted topic with these rows; return the size of all keys and values in bytes."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(topic, partitions, 1, config={"cleanup.policy": "compact"})])[topic].result(60)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 50, "compression.type": "lz4"})
    size = 0
    for number, (row_key, value) in enumerate(rows(count)):
        while True:
            try:
                producer.produce(topic, value, row_key, number % partitions)
                break
            except BufferError:
                producer.poll(0.1)
        size += len(row_key) + len(value)
    assert producer.flush(FLUSH_SECONDS) == 0
    return size


def settings_for(bootstrap_servers: str, topic: str) -> Settings:
    return Settings.model_validate(
        {
            "name": "bench",
            "kafka": {"bootstrap_servers": bootstrap_servers},
            "input": {"topics": ["events"]},
            "output": {"topic": "scores"},
            "model": {"source": "oci:./registry/m"},
            "tables": {"rows": {"topic": topic}},
        }
    )


def measured(bootstrap_servers: str, topic: str, count: int, partitions: int, raw: int) -> dict[str, Any]:
    """Restore the table in this process, then look rows up; return the figures."""
    settings = settings_for(bootstrap_servers, topic)
    source = KafkaTableSource(settings.kafka, settings.owner)
    tables = Tables(settings.tables, source, lambda name: row_decoder_factory(name, settings))
    assigned = [("events", number) for number in range(partitions)]
    with contextlib.closing(tables):
        tables.start()
        tables.prepare(SIGNATURE)
        began = time.perf_counter(), time.process_time()
        tables.follow(assigned, assigned)
        while tables.waiting():
            time.sleep(POLL_SECONDS)
        seconds = time.perf_counter() - began[0]
        cpu_seconds = time.process_time() - began[1]
        row_count, size = tables.sizes()["rows"]
        assert row_count == count, f"{row_count} rows of {count}"
        figures = {
            "rows_per_second": round(count / seconds),
            "rows_per_cpu_second": round(count / cpu_seconds),
            "bytes_per_row": round(size / count, 1),
            "raw_bytes_per_row": round(raw / count, 1),
        }
        return figures | {f"lookup_us_{batch}": _look_up_us(tables, count, batch, partitions) for batch in BATCHES}


def _look_up_us(tables: Tables, count: int, batch: int, partitions: int, repeats: int = 50) -> float:
    """Return the median CPU time of the look-up of an event in a batch, in microseconds."""
    draw = np.random.default_rng(2)
    costs = []
    for _ in range(repeats):
        numbers = draw.integers(0, count, batch)
        ends = np.cumsum([len(key(number)) for number in numbers])
        text = np.frombuffer(b"".join(map(key, numbers.tolist())), np.uint8)
        keys = ByteColumn(text, ends - len(key(0)), ends)
        spaces = (numbers % partitions).astype(np.int32)
        began = time.thread_time()
        joined = tables.columns("rows", FIELDS, keys, spaces)
        costs.append((time.thread_time() - began) / batch * 1e6)
        assert joined.found.all()
    return round(statistics.median(costs), 3)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bench.tables", description="The cost of a table.")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    limit_malloc_arenas()
    with contextlib.contextmanager(shared_broker.shared)() as broker:
        topic = f"{TOPIC}-{time.time_ns()}"
        raw = fill(broker.bootstrap_servers, topic, options.rows, options.partitions)
        rounds = [
            measured(broker.bootstrap_servers, topic, options.rows, options.partitions, raw) for _ in range(options.rounds)
        ]
    spread = {name: [min(column), statistics.median(column), max(column)] for name, column in _columns(rounds)}
    if options.json:
        print(json.dumps(spread))
        return 0
    table = Table("figure", "lowest", "median", "highest")
    for name, values in spread.items():
        table.add_row(name, *(f"{value:,}" for value in values))
    Console().print(table)
    return 0


def _columns(rounds: Sequence[dict[str, Any]]) -> Iterator[tuple[str, list[float]]]:
    """Yield each figure's name, and its value in each round."""
    for name in rounds[0]:
        yield name, [figures[name] for figures in rounds]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
