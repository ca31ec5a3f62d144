"""`python -m tests iceberg`: the feature log in an Iceberg table, through Iceberg's sink connector.

A real scorer writes the feature log. Kafka Connect with the files of the page writes the table and is killed with SIGKILL
meanwhile. Then pyiceberg reads the table, and each row is compared with its record. The exit code is 1 if a row is lost,
duplicated or different, or if a record of an aborted transaction arrived.
"""

import argparse
import contextlib
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import Consumer, Producer, TopicPartition

from scorer.demo.broker.embedded import EmbeddedBroker
from scorer.features.read import decode_json
from tests.docs import pages
from tests.integration.iceberg import logged_model
from tests.integration.iceberg.connect_worker import PAGE, ConnectWorker
from tests.integration.iceberg.lake_table import LakeTable, TableContent, run_pyiceberg
from tests.integration.scorer.rig import Rig
from tests.support import auditor
from tests.support.waiting import until

PARTITIONS = 4
TABLE = "lake.flight_features"
COMMIT_MS = 3_000
RATE = 500  # events per second
TABLE_SECONDS = 300.0
ABORTED = 200
MIN_EVENTS = 3 * ABORTED  # a third of the events has version 1.0.0; its records are copied and aborted
CONTROL = "control-iceberg"
COLUMNS = {
    "id": "string",
    "source": {"topic": "string", "partition": "long", "offset": "long"},
    "event_time": "timestamptz",
    "scored_time": "timestamptz",
    "model": "string",
    "version": "string",
    "digest": "string",
    "role": "string",
    "revision": "long",
    "inputs": {
        "amount": "double",
        "customers.age": "double",
        "items": "long",
        "rate": "double",
        "serial": "long",
        "weekend": "boolean",
        "embedding": "list<double>",
        "carrier": "string",
        "distance": "double",
        "airport": "string",
    },
}
"""The columns of the table after version 2.0.0."""
FAULTS = ("lost", "duplicated", "aborted_arrived", "different", "columns_different", "selected_wrong")
"""The counts that must be 0."""


def main(arguments: Sequence[str]) -> int:
    """Run the test, print its counts as JSON, and return 0 if the table has each committed record once."""
    parser = argparse.ArgumentParser(prog="python -m tests iceberg", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--events", type=int, default=30_000, help="events in all (default: %(default)s)")
    parser.add_argument("--kills", type=int, default=1, help="kills of the Connect worker (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the times of the kills (default: %(default)s)")
    parser.add_argument("--logs", type=Path, help="copy the logs of the scorer and the Connect worker to this folder")
    options = parser.parse_args(arguments)
    if options.events < MIN_EVENTS:
        parser.error(f"--events {options.events} is too small: use at least {MIN_EVENTS}")
    with EmbeddedBroker() as broker, tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        rig = Rig(broker.bootstrap_servers, folder, "flights", input={"id": "id"})
        with contextlib.closing(rig), copied_logs(folder, options.logs):
            counts = Transfer(rig, options.events, options.kills, random.Random(options.seed)).run()
    print(json.dumps(counts, indent=1))
    return 1 if any(counts[name] for name in FAULTS) else 0


@contextlib.contextmanager
def copied_logs(folder: Path, target: Path | None) -> Iterator[None]:
    """Copy the logs of `folder` to the folder `target`, if it is given, when the block ends."""
    try:
        yield
    finally:
        if target is not None:
            target.mkdir(parents=True, exist_ok=True)
            for log in folder.glob("*.log"):
                shutil.copy(log, target)


class Transfer:
    """One run of the test.

    Args:
        rig: The scorer's configuration and topics.
        events: The number of events.
        kills: The number of kills of the Connect worker.
        chance: The source of the times of the kills.
    """

    def __init__(self, rig: Rig, events: int, kills: int, chance: random.Random) -> None:
        self._rig = rig
        self._events = events
        self._kills = kills
        self._chance = chance
        self._features = f"{rig.name}.features"
        self._unwritten: list[int] = []
        self._lake = lake = rig.folder / "lake"
        lake.mkdir()
        self._table = LakeTable(lake / "catalog.db", lake / "warehouse", TABLE)
        self._connect = ConnectWorker(
            rig.folder,
            {
                "kafka:9092": rig.bootstrap_servers,
                "flights.features": self._features,
                "=/lake": f"={lake}",
                "jdbc:sqlite:/lake": f"jdbc:sqlite:{lake}",
                "interval-ms=60000": f"interval-ms={COMMIT_MS}",
            },
        )

    def run(self) -> dict[str, Any]:
        """Score events of three versions while the connector writes the table, and return the counts."""
        rig = self._rig
        rig.configure(features={"topic": self._features})
        for version, package in logged_model.packages(rig.folder).items():
            rig.push(package, version)
        rig.promote("1.0.0")
        rig.create(PARTITIONS)
        rig.make_topic(CONTROL, 1)
        scorer = rig.start().ready()
        first, last = self._events // 3, self._events // 10
        rig.emit(logged_model.events(0, first))
        until(lambda: rig.answered() == first, "the scores of version 1.0.0")
        self._abort()
        try:
            self._connect.start()
            self._wait_for_rows(1)
            rig.run("scorer", "promote", "scorer.yaml", "--to", "2.0.0", "--reason", "test", "--wait")
            self._kill_while(logged_model.events(first, self._events - first - last))
            until(lambda: rig.answered() == self._events - last, "the scores of version 2.0.0")
            rig.run("scorer", "promote", "scorer.yaml", "--to", "3.0.0", "--reason", "test", "--wait")
            rig.emit(
                {**event, "items": number + 0.5} for number, event in enumerate(logged_model.events(self._events - last, last))
            )
            until(lambda: rig.answered() == self._events, "all scores")
            self._wait_for_rows(self._events)
            time.sleep(3 * COMMIT_MS / 1_000)  # a row that is written twice may arrive in a later commit
            content = self._table.read(rig.folder)
            selected = int(run_pyiceberg(pages.blocks(PAGE)["read"].replace("/lake/", f"{self._lake}/")))
            self._connect.stop()
        finally:
            self._connect.kill()
        if code := scorer.stop():
            raise RuntimeError(f"the scorer ended with code {code}")
        return self._compare(content, selected)

    def _kill_while(self, events: Iterator[dict[str, Any]]) -> None:
        """Emit events at a steady rate, and kill the Connect worker while it has records to write."""
        with ThreadPoolExecutor(1) as pool:
            flow = pool.submit(self._rig.emit, events, "--rate", str(RATE))
            for _ in range(self._kills):
                self._wait_for_rows(self._table.count() + 1)
                time.sleep(self._chance.uniform(0, COMMIT_MS / 1_000))
                self._connect.kill()
                self._unwritten.append(self._rig.answered() - self._table.count())
                self._connect.start()
            flow.result()
        if self._kills and not any(self._unwritten):
            raise RuntimeError("every kill came when all records were in the table: use more --events")

    def _wait_for_rows(self, count: int) -> None:
        """Wait until the table has at least `count` rows. Raises RuntimeError if the connector fails meanwhile."""

        def is_reached() -> bool:
            if failure := self._connect.failure():
                raise RuntimeError(f"the connector failed:\n{failure}")
            return self._table.count() >= count

        until(is_reached, f"{count} rows in the table", TABLE_SECONDS, every=0.3)

    def _abort(self) -> None:
        """Write copies of records with other ids to all partitions of the feature log, in a transaction that is aborted."""
        records = [message.value() or b"" for message in auditor.read(self._rig.bootstrap_servers, self._features)]
        producer = Producer({"bootstrap.servers": self._rig.bootstrap_servers, "transactional.id": "aborted"})
        producer.init_transactions(30)
        producer.begin_transaction()
        for number, value in enumerate(records[:ABORTED]):
            document = json.loads(value)
            document["id"] = f"aborted-{number}"
            producer.produce(self._features, json.dumps(document).encode(), partition=number % PARTITIONS)
        producer.flush(30)
        producer.abort_transaction(30)
        uncommitted = self._count_uncommitted(b'"aborted-')
        if uncommitted != ABORTED:
            raise RuntimeError(f"{uncommitted} aborted records are in the topic instead of {ABORTED}")

    def _count_uncommitted(self, text: bytes) -> int:
        """Return the number of records of the feature log that contain `text`, including those of aborted transactions."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._rig.bootstrap_servers,
                "group.id": "uncommitted",
                "enable.auto.commit": False,
                "isolation.level": "read_uncommitted",
            }
        )
        consumer.assign([TopicPartition(self._features, partition, 0) for partition in range(PARTITIONS)])
        count = 0
        while messages := consumer.consume(5_000, 5.0):
            count += sum(text in (message.value() or b"") for message in messages)
        consumer.close()
        return count

    def _compare(self, content: TableContent, selected: int) -> dict[str, Any]:
        """Compare the rows of the table with the committed records of the feature log.

        Args:
            content: The content of the table.
            selected: The number of rows of version 2.0.0 that the script of the page selects.
        """
        messages = auditor.read(self._rig.bootstrap_servers, self._features)
        expected = {position(row): row for row in (expected_row(message.value()) for message in messages)}
        counts = Counter(map(position, content.rows))
        different = [
            (row, expected[position(row)])
            for row in content.rows
            if position(row) in expected and exact(row) != exact(expected[position(row)])
        ]
        for row, record in different[:3]:
            print(f"row:    {exact(row)}\nrecord: {exact(record)}", file=sys.stderr)
        are_columns_different = (content.columns, content.partitions) != (COLUMNS, ["day(event_time)"])
        if are_columns_different:
            print(f"columns: {content.columns}, partitions: {content.partitions}", file=sys.stderr)
        return {
            "records": len(expected),
            "rows": len(content.rows),
            "versions": sorted({row["version"] for row in content.rows}),
            "unwritten_at_kills": self._unwritten,
            "aborted": ABORTED,
            "lost": len(expected.keys() - counts.keys()),
            "duplicated": sum(count - 1 for count in counts.values()),
            "aborted_arrived": sum(row["id"].startswith("aborted-") for row in content.rows),
            "different": len(different),
            "columns_different": int(are_columns_different),
            "selected_wrong": abs(selected - sum(row["version"] == "2.0.0" for row in expected.values())),
        }


def position(row: dict[str, Any]) -> tuple[str, int, int]:
    """Return the position of the event of a row."""
    source = row["source"]
    return source["topic"], source["partition"], source["offset"]


def expected_row(value: bytes | None) -> dict[str, Any]:
    """Return the row that the table must have for a record of the feature log, as the product's reader decodes it.

    Three values differ. Kafka Connect reads integers as signed: a uint64 beyond 2^63 - 1 is 2^64 less in the table. Its JSON
    converter reads -0.0 as 0.0. The type of a column does not follow version 3.0.0: the fraction of `items` is lost in a column
    of type long.
    """
    record = msgspec.to_builtins(decode_json(value))
    del record["text"]
    record["event_time"], record["scored_time"] = record.pop("event_ms"), record.pop("scored_ms")
    inputs = dict.fromkeys(COLUMNS["inputs"]) | record["inputs"]
    if inputs["serial"] > logged_model.LARGEST_LONG:
        inputs["serial"] -= 1 << 64
    inputs["rate"] += 0.0  # -0.0 + 0.0 is 0.0
    inputs["items"] = int(inputs["items"])
    return {**record, "inputs": inputs}


def exact(row: dict[str, Any]) -> str:
    """Return a text that is equal only for rows with equal values of equal types, including the sign of zero."""
    return json.dumps(row, sort_keys=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
