"""Three regions for the failover campaign: two that can score, one that only reads; all run the installed commands.

Events have no id. An event is identified by the position at which it was first written, which copies must keep.
"""

import contextlib
import json
import shutil
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, Message
from confluent_kafka.admin import AdminClient

from scorer.demo.broker.embedded import EmbeddedBroker
from tests.chaos.load import Load
from tests.integration.relay.rig import RelayRig
from tests.integration.scorer.rig import Rig
from tests.support import auditor, models
from tests.support.follower import Follower

PARTITIONS = 4
Positions = dict[str, int]
"""Positions (`region/topic/partition/offset`) with a wall-clock time, Unix ms."""


class MovingLoad(Load):
    """Writes events at a rate into one region, until it is closed. `write_times`: the time at which each was acknowledged."""

    def __init__(self, servers: str, topic: str, rate: float) -> None:
        super().__init__(servers, topic, rate, make=lambda number: b'{"a": %d, "b": 0.5}' % number)
        self.write_times: Positions = {}
        self._region = ""

    def go_to(self, region: str, servers: str) -> None:
        """Write into this region from now on. Unacknowledged events of the previous region are given up, as in a real loss."""
        with self._turn:
            before, self._region, self._bootstrap_servers = self._producer, region, servers
            self._producer = self._create_producer(**{"message.timeout.ms": 3_000})
        if not self.is_alive():
            self.start()
        before.flush(10)

    def _delivery(self, _: bytes | None) -> dict[str, Any]:
        region = self._region

        def acknowledge(error: KafkaError | None, message: Message) -> None:
            if error is None:
                position = f"{region}/{message.topic()}/{message.partition()}/{message.offset()}"
                self.write_times[position] = time.time_ns() // 1_000_000

        return {"partition": self.written % PARTITIONS, "on_delivery": acknowledge}


class Reader:
    """A consumer in the third region that records every id and the time of its arrival."""

    def __init__(self, servers: str, topic: str) -> None:
        self.ids: list[str] = []
        self.at: list[float] = []
        self.regions: list[str] = []
        self._follower = Follower(servers, topic)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join()
        self._follower.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            for message in self._follower.take(0.1):
                record = json.loads(message.value() or b"")
                self.regions.append(record["region"])
                self.at.append(time.monotonic())
                self.ids.append(record["id"])


class Brokers(dict[str, EmbeddedBroker]):
    def __enter__(self) -> "Brokers":
        for region in ("eu", "us", "ap"):
            self[region] = EmbeddedBroker().start()
        return self

    def __exit__(self, *_: object) -> None:
        for broker in self.values():
            broker.stop()

    def revive(self) -> None:
        """Restart all brokers, after a round that was cut short."""
        for broker in self.values():
            with contextlib.suppress(RuntimeError):
                broker.restart()

    def servers(self, region: str) -> str:
        return self[region].bootstrap_servers


class Regions:
    def __init__(self, brokers: Brokers, folder: Path, name: str, registry: Path) -> None:
        self.brokers = brokers
        self.name = name
        self.events, self.scores = f"{name}.events", f"{name}.scores"
        self._folder = folder
        self._registry = registry
        self.scorers = {"eu": self._scorer("eu", "us"), "us": self._scorer("us", "eu")}
        copies, group = {"topic": "{region}.{topic}"}, [name]
        self.inputs = {
            "us": self._relay("eu", "us", self.events, copies, group),
            "eu": self._relay("us", "eu", self.events, copies, group),
        }
        self.answers = {region: self._relay(region, "ap", self.scores, {}, []) for region in ("eu", "us")}

    def prepare(self) -> None:
        """Create the topics in every region: the written ones, then the copies, then the other topics of scorers."""
        for relay in (*self.inputs.values(), *self.answers.values()):
            relay.create(relay.source, relay.topic, PARTITIONS)
        for relay in (*self.inputs.values(), *self.answers.values()):
            relay.json("check", "--create")
        for rig in self.scorers.values():
            rig.create(PARTITIONS)

    def origins(self) -> set[str]:
        """Return the position at which every event was first written, as read by a plain client."""
        origins = set()
        for region in ("eu", "us"):
            rows = auditor.read(self.brokers.servers(region), self.events)
            origins |= {f"{region}/{self.events}/{m.partition()}/{m.offset()}" for m in rows}
        return origins

    def members(self, region: str) -> int:
        admin = AdminClient({"bootstrap.servers": self.brokers.servers(region)})
        return len(admin.describe_consumer_groups([self.name])[self.name].result().members)

    def at_rest(self, region: str) -> bool:
        servers = self.brokers.servers(region)
        admin = AdminClient({"bootstrap.servers": servers})
        answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(self.name)])[self.name].result()
        committed = {(p.topic, p.partition): p.offset for p in answer.topic_partitions or []}
        topics = self.scorers[region].configuration["input"]["topics"]
        rows = [message for topic in topics for message in auditor.read(servers, topic)]
        return all(committed.get((m.topic(), m.partition()), 0) > (m.offset() or 0) for m in rows)

    def audit(self) -> dict[str, Any]:
        """Return the count of the product over the regions. The copies of the scores must be complete too."""
        for relay in self.answers.values():
            assert relay.json("audit")["clean"]
        first, second = (str(rig.path) for rig in self.scorers.values())
        report: dict[str, Any] = json.loads(self.scorers["eu"].run("scorer", "audit", first, second, "--json").stdout)
        return report

    def close(self) -> None:
        for scorer in self.scorers.values():
            scorer.close()
        for relay in (*self.inputs.values(), *self.answers.values()):
            relay.close()

    def _scorer(self, region: str, other: str) -> Rig:
        folder = self._folder / region
        folder.mkdir(parents=True)
        return Rig(
            self.brokers.servers(region),
            folder,
            self.name,
            region=region,
            input={"topics": [self.events, f"{other}.{self.events}"], "id": "header:ce_id"},
            model={"source": f"oci:{self._registry}/model"},
        )

    def _relay(self, source: str, destination: str, topic: str, to: dict[str, Any], groups: Sequence[str]) -> RelayRig:
        servers = self.brokers.servers(source), self.brokers.servers(destination)
        content = "events" if groups else "scores"
        rig = RelayRig(servers, self._folder, f"{self.name}-{content}-{source}-{destination}")
        rig.configure(
            source={"region": source, "topics": [topic], "groups": list(groups)},
            destination={"region": destination, **to},
            checkpoint_topic=f"{self.name}.checkpoints",
        )
        rig.topic = topic
        return rig


def make_registry(folder: Path) -> Path:
    rig = Rig("127.0.0.1:1", folder, "model")
    rig.push(models.linear_package(folder / "one", 2.0), "1.0.0")
    rig.promote("1.0.0")
    shutil.rmtree(folder / "one")
    return folder / "registry"
