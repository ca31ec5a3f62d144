"""What is looked at: scorers under a steady load, a relay into a second cluster, and Prometheus that scrapes them as pods."""

import json
import threading
import time
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from scorer.demo.broker.embedded import EmbeddedBroker
from scorer.intake.marks import Mark
from tests.integration.relay.rig import RelayRig
from tests.integration.scorer.rig import Rig, ScorerProcess
from tests.proofs.seeing.prometheus import Prometheus
from tests.support import models
from tests.support.processes import Service

NAMESPACE = "scoring"
RELAY = "publisher-from-us-east-0"


class Load(threading.Thread):
    """Events at a steady rate, a share of them unfit. Use it in a `with`."""

    def __init__(self, servers: str, topic: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self.rate = 50.0
        self.unfit = 0.0
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
        self._topic = topic
        self._partitions = partitions
        self._ended = threading.Event()

    def __enter__(self) -> "Load":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()
        self._producer.flush(10)
        del self._producer

    def run(self) -> None:
        number = 0
        while not self._ended.wait(1 / self.rate):
            number += 1
            bad = number % 100 < self.unfit * 100
            event = {"id": f"e{number}", "a": "?" if bad else 1.0, "b": 2.0}
            self._producer.produce(self._topic, json.dumps(event), f"k{number}", number % self._partitions)
            self._producer.poll(0)


class Fleet:
    """One scorers' region (namespace `scoring`) and a relay that copies its scores into a second cluster."""

    def __init__(self, here: EmbeddedBroker, there: EmbeddedBroker, folder: Path, prometheus: Prometheus) -> None:
        self.here, self.there, self.prometheus = here, there, prometheus
        (folder / "relay").mkdir(parents=True)
        self.rig = Rig(here.bootstrap_servers, folder, f"seeing-{time.time_ns()}")
        self.rig.push(models.linear_package(folder / "one", 2.0), "1.0.0")
        self.rig.push(models.linear_package(folder / "two", 3.0), "2.0.0")
        self.rig.push_unchecked(models.package(folder / "wrong", lambda p: models.linear(p, 5.0, width=3)), "3.0.0")
        self.rig.promote("1.0.0")
        self.rig.create(partitions=2)
        self.relay = RelayRig((here.bootstrap_servers, there.bootstrap_servers), folder / "relay", "scores")
        self.relay.configure(source={"topics": [self.rig.scores_topic]})
        self.scorers: dict[str, ScorerProcess] = {}
        self.addresses: dict[str, str] = {}

    def start(self, pod: str, *flags: str, namespace: str = NAMESPACE) -> ScorerProcess:
        """A scorer as the pod of that name; its replica too."""
        scorer = self.rig.start(pod, *flags).ready()
        self.scorers[pod], self.addresses[pod] = scorer, scorer.address
        self.prometheus.scrape(scorer.endpoint, namespace=namespace, pod=pod)
        return scorer

    def stop(self, pod: str) -> None:
        """It ends in good order, and its pod is gone."""
        code = self.scorers.pop(pod).stop()
        self.prometheus.forget(self.addresses.pop(pod))
        assert code == 0, f"{pod} ended with {code}"

    def start_relay(self) -> Service:
        relay = self.relay.start().ready()
        self.addresses[RELAY] = relay.address
        self.prometheus.scrape(relay.endpoint, namespace=NAMESPACE, pod=RELAY)
        return relay

    def mark(self, partition: int, revision: int) -> None:
        """The group's offset says that a newer revision has scored this partition. No scorer may run."""
        admin = AdminClient({"bootstrap.servers": self.here.bootstrap_servers})
        at = self.rig.marks()[partition]["offset"]
        moved = TopicPartition(self.rig.events_topic, partition, at, Mark(revision=revision).encode())
        for done in admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(self.rig.name, [moved])]).values():
            done.result()

    def close(self) -> None:
        self.rig.close()
        self.relay.close()
