"""`python -m tests.benchmarks.training.snapshot`: a million events, with labels, frozen and copied from a real broker.

Two processes copy one freeze, with more records written between them. The copies must be byte-identical, at 250,000 records/s
or more, in less than 500 MB. The figures are JSON on stdout; the exit code is 1 if a figure misses its limit.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from scorer.demo.broker.embedded import EmbeddedBroker
from tests.support import topics
from training import settings
from training.snapshot import freeze as snapshot
from training.snapshot.files import Frozen

PARTITIONS = 6
RECORDS_PER_SECOND, MEGABYTES = 250_000, 500
QUEUE = 500_000  # records that wait in the producer
HOUR_MS = 3_600_000


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.training.snapshot", description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=1_000_000, help="events, and half as many labels")
    parser.add_argument("--copy", nargs=3, help=argparse.SUPPRESS, metavar=("CONFIG", "FROZEN", "FOLDER"))
    options = parser.parse_args(arguments)
    if options.copy:
        print(json.dumps(copied(*map(Path, options.copy))))
        return 0
    with tempfile.TemporaryDirectory(prefix="scorestream-snapshot-") as name, EmbeddedBroker() as broker:
        figures = measured(broker.bootstrap_servers, Path(name), options.events)
    slower = min(figures["records_per_s"])
    figures["ok"] = figures["same"] and slower >= RECORDS_PER_SECOND and max(figures["peak_mib"]) * 1.048576 < MEGABYTES
    print(json.dumps(figures, indent=1))
    return int(not figures["ok"])


def measured(servers: str, folder: Path, count: int) -> dict[str, Any]:
    """Freeze once and copy twice."""
    config = configured(servers, folder)
    now = int(time.time() * 1_000)
    topics.settle(topics.admin(servers).create_topics([NewTopic(topic, PARTITIONS) for topic in ("events", "labels")]))
    write(servers, "events", events(count, now))
    write(servers, "labels", labels(count // 2, now))
    training, scorer = settings.load(config)
    began = time.monotonic()
    frozen = snapshot.freeze(scorer, training, now)
    seconds = time.monotonic() - began
    (folder / "frozen.json").write_bytes(msgspec.json.encode(frozen))
    first = in_a_process(config, folder / "first")
    write(servers, "events", events(1_000, now))
    second = in_a_process(config, folder / "second")
    copies = (first, second)
    return {
        "records": first["records"],
        "freeze_s": round(seconds, 3),
        "records_per_s": [round(copy["records"] / copy["seconds"]) for copy in copies],
        "peak_mib": [copy["peak_mib"] for copy in copies],
        "file_mib": first["file_mib"],
        "same": first["digest"] == second["digest"] and first["records"] == count + count // 2,
        "digest": first["digest"],
    }


def configured(servers: str, folder: Path) -> Path:
    scorer = {
        "name": "proof",
        "kafka": {"bootstrap_servers": servers},
        "input": {"topics": ["events"], "id": "id"},
        "output": {"topic": "scores"},
        "model": {"source": "oci:./registry/model"},
        "labels": {"topic": "labels", "value": "outcome"},
    }
    (folder / "scorer.yaml").write_text(yaml.safe_dump(scorer))
    path = folder / "training.yaml"
    path.write_text(yaml.safe_dump({"scorer": "scorer.yaml"}))
    return path


def events(count: int, now: int) -> Iterable[tuple[bytes, bytes, int, int]]:
    """Yield the key, value, time and partition of events of about 170 bytes, over ten days."""
    for n in range(count):
        value = b'{"id":"e%d","carrier":"C%d","origin":"JFK","distance":%d,"hour":%d,"wind":%d.25,"visibility":10.0,' % (
            n,
            n % 17,
            n * 7919 % 2_500,
            n % 24,
            n % 31,
        ) + b'"pressure":%d.5,"humidity":%d.5,"month":9,"day":%d}' % (980 + n % 50, n % 100, n % 30)
        yield b"k%d" % (n % 1_000), value, now - 240 * HOUR_MS + n * 239 * HOUR_MS // count, n * 31 % PARTITIONS


def labels(count: int, now: int) -> Iterable[tuple[bytes, bytes, int, int]]:
    for n in range(count):
        yield b"e%d" % n, b'{"outcome":%d}' % (n % 5 == 0), now - HOUR_MS + n * HOUR_MS // count, n % PARTITIONS


def write(servers: str, topic: str, records: Iterable[tuple[bytes, bytes, int, int]]) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "queue.buffering.max.messages": 2 * QUEUE})
    for count, (key, value, ms, partition) in enumerate(records):
        producer.produce(topic, value, key, partition, timestamp=ms)
        if count % 10_000 == 0:
            producer.poll(0)
            while len(producer) > QUEUE:
                producer.poll(0.1)
    assert producer.flush(300) == 0


def in_a_process(config: Path, folder: Path) -> dict[str, Any]:
    command = [
        sys.executable,
        "-m",
        "tests.benchmarks.training.snapshot",
        "--copy",
        config,
        folder.with_name("frozen.json"),
        folder,
    ]
    figures: dict[str, Any] = json.loads(subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, check=True).stdout)
    return figures


def copied(config: Path, frozen: Path, folder: Path) -> dict[str, Any]:
    """Copy the frozen records in this process; return the figures."""
    _, scorer = settings.load(config)
    wanted = msgspec.json.decode(frozen.read_bytes(), type=Frozen)
    began = time.monotonic()
    dataset = snapshot.copy(scorer, wanted, folder)
    seconds = time.monotonic() - began
    return {
        "seconds": seconds,
        "records": dataset.records("events") + dataset.records("labels"),
        "file_mib": round(sum(file.bytes for file in dataset.files.values()) / (1 << 20)),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024),
        "digest": dataset.digest,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
