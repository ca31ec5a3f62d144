"""What is looked at: scorers under a load, a relay into a second cluster, and Prometheus that scrapes them as pods."""

import time
from collections import Counter
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from prometheus_client import CollectorRegistry, start_http_server

from publisher.runtime.process_metrics import register_process_metrics
from scorer.consumer.offset_metadata import OffsetMetadata
from scorer.demo.broker.embedded import EmbeddedBroker
from scorer.observability.rollout_metrics import RolloutMetrics, RolloutState
from tests.benchmarks.seeing.prometheus import Prometheus
from tests.chaos.load import Load
from tests.integration.relay.rig import RelayRig
from tests.integration.scorer.rig import Rig, ScorerProcess
from tests.support import hostile_models, models
from tests.support.processes import Service

NAMESPACE = "scoring"
RELAY = "publisher-from-us-east-0"
CONTROLLER = "rollout-controller-0"
RATE = 50.0  # events a second


class Fleet:
    """One scorers' region (namespace `scoring`) and a relay that copies its scores into a second cluster. `rollout` is what a
    controller tells of itself: that of a leader, made up, for nothing is rolled out by a plan here."""

    def __init__(self, here: EmbeddedBroker, there: EmbeddedBroker, folder: Path, prometheus: Prometheus) -> None:
        self.here, self.there, self.prometheus = here, there, prometheus
        (folder / "relay").mkdir(parents=True)
        self.rig = Rig(here.bootstrap_servers, folder, f"seeing-{time.time_ns()}").stocked(2, versions=2)
        self.rig.push_unchecked(models.package(folder / "wrong", lambda p: models.linear(p, 5.0, width=3)), "3.0.0")
        self.rig.push_unchecked(hostile_models.package(folder / "endless", hostile_models.endless), "5.0.0")
        self.rig.push_unchecked(models.package(folder / "failing", lambda p: models.linear(p, float("nan"))), "4.0.0")
        self.load = Load(here.bootstrap_servers, self.rig.events_topic, RATE)
        self.relay = RelayRig((here.bootstrap_servers, there.bootstrap_servers), folder / "relay", "scores")
        self.relay.configure(source={"topics": [self.rig.scores_topic]})
        self.scorers: dict[str, ScorerProcess] = {}
        self.addresses: dict[str, str] = {}
        self.rollout = RolloutState(is_leader=True, running=True, behind_seconds=0.0, decisions=Counter(promote=1))
        registry = CollectorRegistry()
        register_process_metrics(registry, "scorer_rollout")
        registry.register(RolloutMetrics(self.rollout, lambda: self.rollout.iterated_at))
        self._controller, _ = start_http_server(0, "127.0.0.1", registry)
        self.lead()

    def lead(self) -> None:
        """The controller is there."""
        self.prometheus.scrape(f"127.0.0.1:{self._controller.server_port}", namespace=NAMESPACE, pod=CONTROLLER)

    def leave(self) -> None:
        """It is gone."""
        self.prometheus.forget(f"127.0.0.1:{self._controller.server_port}")

    def start(self, pod: str, *flags: str, namespace: str = NAMESPACE) -> ScorerProcess:
        scorer = self.rig.start(pod, *flags).ready()
        self.scorers[pod], self.addresses[pod] = scorer, scorer.address
        self.prometheus.scrape(scorer.endpoint, namespace=namespace, pod=pod)
        return scorer

    def stop(self, pod: str) -> None:
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
        at = self.rig.marks()[partition]["offset"]
        moved = TopicPartition(self.rig.events_topic, partition, at, OffsetMetadata(revision=revision).encode())
        for done in self.rig.admin.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(self.rig.name, [moved])]
        ).values():
            done.result()

    def close(self) -> None:
        self._controller.shutdown()
        self._controller.server_close()
        self.rig.close()
        self.relay.close()
