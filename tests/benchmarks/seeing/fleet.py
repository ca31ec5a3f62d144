"""The observed programs: scorers under load, a relay into a second cluster, and a Prometheus that scrapes them as pods."""

import time
from collections import Counter
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from prometheus_client import CollectorRegistry, Gauge, start_http_server

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
SERVICE = "flight-delay"
RELAY = "flight-delay-relay-us-east-0"
CONTROLLER = "flight-delay-rollout-controller-0"
RATE = 50.0  # events a second


class Fleet:
    """Scorers of the service `flight-delay` in the namespace `scoring`, and a relay that copies their scores.

    `rollout` is the state that the metrics of a controller report: that of a leader, because no rollout plan runs here.
    """

    def __init__(self, broker: EmbeddedBroker, remote_broker: EmbeddedBroker, folder: Path, prometheus: Prometheus) -> None:
        self.broker, self.remote_broker, self.prometheus = broker, remote_broker, prometheus
        (folder / "relay").mkdir(parents=True)
        self.rig = Rig(broker.bootstrap_servers, folder, f"seeing-{time.time_ns()}").stocked(2, versions=2)
        self.rig.push_unchecked(models.package(folder / "wrong", lambda p: models.linear(p, 5.0, width=3)), "3.0.0")
        self.rig.push_unchecked(hostile_models.package(folder / "endless", hostile_models.endless), "5.0.0")
        self.rig.push_unchecked(models.package(folder / "failing", lambda p: models.linear(p, float("nan"))), "4.0.0")
        self.load = Load(broker.bootstrap_servers, self.rig.events_topic, RATE)
        self.relay = RelayRig((broker.bootstrap_servers, remote_broker.bootstrap_servers), folder / "relay", "scores")
        self.relay.configure(source={"topics": [self.rig.scores_topic]})
        self.scorers: dict[str, ScorerProcess] = {}
        self.addresses: dict[str, str] = {}
        self.rollout = RolloutState(is_leader=True, running=True, behind_seconds=0.0, decisions=Counter(promote=1))
        registry = CollectorRegistry()
        register_process_metrics(registry, "scorer_rollout")
        registry.register(RolloutMetrics(self.rollout, lambda: self.rollout.iterated_at))
        self._controller, _ = start_http_server(0, "127.0.0.1", registry)
        self.lead()
        registry = CollectorRegistry()
        name = "kube_statefulset_replicas"
        self._replicas = Gauge(name, "Wanted pods.", ["namespace", "statefulset"], registry=registry)
        self.want("scorer", 1)
        self._state, _ = start_http_server(0, "127.0.0.1", registry)
        self.prometheus.scrape(f"127.0.0.1:{self._state.server_port}")

    def want(self, component: str, replicas: int) -> None:
        """Export the wanted replicas of a StatefulSet of the service, as kube-state-metrics does."""
        self._replicas.labels(NAMESPACE, f"{SERVICE}-{component}").set(replicas)

    def show(self, pod: str, endpoint: str) -> None:
        """Let Prometheus scrape a pod of the service."""
        self.prometheus.scrape(endpoint, namespace=NAMESPACE, service=SERVICE, pod=pod)

    def hide(self, pod: str) -> None:
        """Let Prometheus forget a pod."""
        self.prometheus.forget(self.addresses[pod])

    def lead(self) -> None:
        """Let Prometheus scrape the rollout controller."""
        self.show(CONTROLLER, f"127.0.0.1:{self._controller.server_port}")

    def leave(self) -> None:
        """Let Prometheus forget the rollout controller."""
        self.prometheus.forget(f"127.0.0.1:{self._controller.server_port}")

    def start(self, pod: str, *flags: str) -> ScorerProcess:
        scorer = self.rig.start(pod, *flags).ready()
        self.scorers[pod], self.addresses[pod] = scorer, scorer.address
        self.show(pod, scorer.endpoint)
        return scorer

    def stop(self, pod: str) -> None:
        code = self.scorers.pop(pod).stop()
        self.prometheus.forget(self.addresses.pop(pod))
        assert code == 0, f"{pod} ended with {code}"

    def start_relay(self) -> Service:
        relay = self.relay.start().ready()
        self.addresses[RELAY] = relay.address
        self.show(RELAY, relay.endpoint)
        return relay

    def mark(self, partition: int, revision: int) -> None:
        """Record in the group's offset that a newer revision has scored this partition. No scorer may run."""
        offset = self.rig.marks()[partition]["offset"]
        position = TopicPartition(self.rig.events_topic, partition, offset, OffsetMetadata(revision=revision).encode())
        for future in self.rig.admin.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(self.rig.name, [position])]
        ).values():
            future.result()

    def close(self) -> None:
        self._controller.shutdown()
        self._controller.server_close()
        self._state.shutdown()
        self._state.server_close()
        self.rig.close()
        self.relay.close()
