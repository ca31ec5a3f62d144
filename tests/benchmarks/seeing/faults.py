"""The faults that trigger alerts, as context managers that cause and heal them."""

import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from confluent_kafka import Consumer, KafkaException, Producer

from publisher.transactions.transactional_ids import transactional_ids
from tests.benchmarks.seeing.fleet import RATE, Fleet
from tests.benchmarks.seeing.rules import SPEED
from tests.integration.registry.hostile import Reply, hostile
from tests.integration.scorer.rig import ScorerProcess, until
from tests.support.waiting import within

MAX_PAUSES, OPEN_SECONDS = 30, 4.0  # of a broker, until a pause happens during a transaction
POLL_SECONDS = 0.2
DAY = 86_400


@contextmanager
def no_scorer_runs(fleet: Fleet) -> Iterator[None]:
    """No scorer of the service runs; Prometheus has the series of a scorer of the same service in another namespace."""
    with hostile() as exporter:
        exporter.always(_metrics('scorer_assigned_partitions{namespace="other",service="flight-delay"} 6\n'))
        fleet.prometheus.scrape(exporter.address)
        yield
        fleet.start("scorer-0")
        fleet.prometheus.clears("ScorerAbsent", "ScorerReplicasMissing")
        fleet.prometheus.forget(exporter.address)


@contextmanager
def healthy_hour(fleet: Fleet) -> Iterator[None]:
    """An accelerated hour without a fault, after the earlier alerts have cleared. No alert fires."""
    fleet.want("scorer", len(fleet.scorers))
    until(lambda: not within(fleet.prometheus.firing, 30.0), "the end of all alerts")
    assert not within(fleet.prometheus.firing, 3_600 / SPEED), f"{fleet.prometheus.firing()} in a healthy hour"
    yield


@contextmanager
def missing_scorer(fleet: Fleet) -> Iterator[None]:
    """A pod of the StatefulSet is not scheduled, and another target cannot be reached."""
    fleet.want("scorer", len(fleet.scorers) + 1)
    fleet.show("unreachable-0", "127.0.0.1:1")
    yield
    fleet.prometheus.forget("127.0.0.1:1")
    fleet.want("scorer", len(fleet.scorers))


@contextmanager
def foreign_member(fleet: Fleet) -> Iterator[None]:
    """Another program consumes with the group of the scorers, and gets a partition because there are fewer scorers."""
    if "scorer-1" in fleet.scorers:
        fleet.stop("scorer-1")
    consumer = Consumer(
        {
            "bootstrap.servers": fleet.broker.bootstrap_servers,
            "group.id": fleet.rig.name,
            "client.id": "reporting-job",
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": 6_000,
            "enable.auto.commit": False,  # else its partitions' events count as scored, and the audit reports them missing
        }
    )
    ended = threading.Event()

    def poll() -> None:
        while not ended.is_set():
            consumer.poll(0.1)
        consumer.close()

    consumer.subscribe([fleet.rig.events_topic])
    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        fleet.start("scorer-1")


@contextmanager
def registry_unavailable(fleet: Fleet) -> Iterator[None]:
    """The registry of the scorers is unavailable."""
    registry = fleet.rig.folder / "registry"
    aside = registry.with_name("aside")
    registry.rename(aside)
    try:
        yield
    finally:
        aside.rename(registry)


@contextmanager
def two_versions(fleet: Fleet) -> Iterator[None]:
    fleet.rig.run("model-registry", "promote", "oci:./registry/model", "--channel", "next", "--to", "2.0.0", "--reason", "test")
    fleet.start("scorer-1", "--set", "model.tag=next")
    yield
    fleet.stop("scorer-1")
    fleet.start("scorer-1")


@contextmanager
def no_partitions(fleet: Fleet) -> Iterator[None]:
    """Prometheus scrapes only a third scorer, which is assigned none of the two partitions."""
    fleet.start("spare-0")
    scorers = [pod for pod in fleet.scorers if pod != "spare-0"]
    for pod in scorers:
        fleet.hide(pod)
    yield
    for pod in scorers:
        fleet.show(pod, fleet.scorers[pod].endpoint)
    fleet.stop("spare-0")


@contextmanager
def invalid_events(fleet: Fleet) -> Iterator[None]:
    fleet.load.poison = 0.1
    yield
    fleet.load.poison = 0.0


@contextmanager
def wrong_version(fleet: Fleet) -> Iterator[None]:
    fleet.rig.promote("3.0.0")
    yield
    fleet.rig.promote("1.0.0")


@contextmanager
def endless_load(fleet: Fleet) -> Iterator[None]:
    fleet.rig.promote("5.0.0")
    yield
    fleet.rig.promote("1.0.0")


@contextmanager
def failing_canary(fleet: Fleet) -> Iterator[None]:
    """A candidate whose scores are NaN receives half of the keys."""
    fleet.rig.run("model-registry", "promote", "oci:./registry/model", "--to", "4.0.0", "--canary", "50%", "--reason", "seeing")
    yield
    fleet.rig.promote("1.0.0")


@contextmanager
def no_leader(fleet: Fleet) -> Iterator[None]:
    fleet.leave()
    yield
    fleet.lead()


@contextmanager
def troubled_rollout(fleet: Fleet) -> Iterator[None]:
    """The judge of a rollout is behind, its registry is unavailable, and it waits for the operator."""
    fleet.rollout.behind_seconds, fleet.rollout.registry_unavailable, fleet.rollout.waits_for_operator = 45.0, True, True
    yield
    fleet.rollout.behind_seconds, fleet.rollout.registry_unavailable, fleet.rollout.waits_for_operator = 0.0, False, False


@contextmanager
def stolen_ids(fleet: Fleet) -> Iterator[None]:
    """Another process repeatedly takes a transactional id of a scorer while there is little to commit."""
    fleet.load.rate = 4.0
    ended = threading.Event()
    thief = threading.Thread(target=_steal, args=(fleet, ended), daemon=True)
    thief.start()
    try:
        yield
    finally:
        ended.set()
        thief.join()
        fleet.load.rate = RATE


@contextmanager
def broker_outage(fleet: Fleet) -> Iterator[None]:
    """The broker pauses while a transaction is open. Transactions take milliseconds, so that several pauses may be needed."""
    fleet.load.rate = 2_000.0
    try:
        for _ in range(MAX_PAUSES):
            fleet.broker.pause()
            if within(lambda: any(_has_long_transaction(scorer) for scorer in fleet.scorers.values()), OPEN_SECONDS):
                break
            fleet.broker.resume()
            until(
                lambda: not any(_has_long_transaction(scorer) for scorer in fleet.scorers.values()), "a transaction that ends"
            )
        fleet.load.rate = RATE
        yield
    finally:
        fleet.broker.resume()


@contextmanager
def newer_revision(fleet: Fleet) -> Iterator[None]:
    """A partition was scored by a revision that no scorer can find: it stalls for half a minute, then continues."""
    for pod in list(fleet.scorers):
        fleet.stop(pod)
    fleet.mark(0, revision=99_999)
    fleet.rig.alter(fleet.rig.events_topic, "retention.ms", "45000")
    for pod in ("scorer-0", "scorer-1"):
        fleet.start(pod)
    fleet.rig.alter(fleet.rig.events_topic, "retention.ms", "-1")
    yield


@contextmanager
def no_card(fleet: Fleet) -> Iterator[None]:
    """A pod requests a card, as kube-state-metrics reports. Without a card, a scorer configured for it does not start."""
    if shutil.which("nvidia-smi") is None:
        scorer = fleet.rig.start("gpu-0", "--set", "model.device=cuda")
        assert scorer.wait() == 2, scorer.said
    labels = 'namespace="scoring",pod="flight-delay-scorer-9",container="scorer",resource="nvidia_com_gpu"'
    series = f"kube_pod_container_resource_requests{{{labels}}} 1\n"
    with hostile() as exporter:
        exporter.always(_metrics(series))
        fleet.prometheus.scrape(exporter.address)
        yield
        fleet.prometheus.forget(exporter.address)


@contextmanager
def refused_runs(fleet: Fleet) -> Iterator[None]:
    """kube-state-metrics reports that a run succeeded nine days ago and the last one failed. Then a run succeeds."""
    now = int(time.time())
    with hostile() as exporter:
        exporter.always(_job_metrics({"created": now - 90 * DAY, "good": now - 9 * DAY, "bad": now - DAY}))
        fleet.prometheus.scrape(exporter.address)
        yield
        exporter.always(_job_metrics({"created": now - 90 * DAY, "good": now, "bad": now - DAY}))
        fleet.prometheus.clears("TrainingFailed", "TrainingStale")
        fleet.prometheus.forget(exporter.address)


@contextmanager
def no_relay(fleet: Fleet) -> Iterator[None]:
    """A relay is expected and does not run. Then it starts, and the source retains records for one minute only."""
    fleet.want("relay-us-east", 1)
    yield
    fleet.rig.alter(fleet.rig.scores_topic, "retention.ms", "60000")
    fleet.start_relay()


@contextmanager
def destination_unavailable(fleet: Fleet) -> Iterator[None]:
    """The destination cluster of a relay pauses."""
    until(lambda: fleet.relay.copied(fleet.rig.scores_topic) > 0, "copies")
    fleet.remote_broker.pause()
    try:
        yield
    finally:
        fleet.remote_broker.resume()


def _metrics(series: str) -> Reply:
    return Reply(body=series.encode(), headers={"Content-Type": "text/plain; version=0.0.4"})


def _job_metrics(times: Mapping[str, int]) -> Reply:
    """Return the metrics of the CronJob, a Job that succeeded and one that failed. `times`: Unix seconds."""
    good = 'namespace="scoring",job_name="flight-delay-training-1"'
    bad = 'namespace="scoring",job_name="flight-delay-training-2"'
    lines = (
        f'kube_cronjob_created{{namespace="scoring",cronjob="flight-delay-training"}} {times["created"]}',
        f"kube_job_status_completion_time{{{good}}} {times['good']}",
        f"kube_job_status_start_time{{{bad}}} {times['bad']}",
        f'kube_job_failed{{{bad},condition="true"}} 1',
    )
    return _metrics("".join(f"{line}\n" for line in lines))


def _has_long_transaction(scorer: ScorerProcess) -> bool:
    """Whether a scorer has a transaction open for longer than usual."""
    return scorer.metric("scorer_open_transaction_seconds") > 1.0


FAULTS: dict[str, tuple[Callable[[Fleet], AbstractContextManager[None]], tuple[str, ...]]] = {
    "no-scorer-runs": (no_scorer_runs, ("ScorerAbsent", "ScorerReplicasMissing")),
    "two-versions": (two_versions, ("ScorerVersionSkew",)),
    "healthy-hour": (healthy_hour, ()),
    "missing-scorer": (missing_scorer, ("ScorerTargetDown", "ScorerReplicasMissing")),
    "foreign-member": (foreign_member, ("ScorerForeignMembers",)),
    "registry-unavailable": (registry_unavailable, ("ScorerRegistryAway",)),
    "no-partitions": (no_partitions, ("ScorerNothingAssigned",)),
    "invalid-events": (invalid_events, ("ScorerDeadLetters",)),
    "wrong-version": (wrong_version, ("ScorerVersionRefused",)),
    "endless-load": (endless_load, ("ScorerVersionLoadLong",)),
    "failing-canary": (failing_canary, ("ScorerCanaryBreakerOpen", "ScorerCanaryFails")),
    "no-leader": (no_leader, ("ScorerRolloutControllerAway",)),
    "troubled-rollout": (troubled_rollout, ("ScorerRolloutJudgeBehind", "ScorerRolloutRegistryAway", "ScorerRolloutWaits")),
    "stolen-ids": (stolen_ids, ("ScorerFenced", "ScorerAborts")),
    "broker-outage": (broker_outage, ("ScorerOpenTransaction", "ScorerDependencyAway")),
    "newer-revision": (
        newer_revision,
        ("ScorerPartitionStalled", "ScorerLag", "ScorerLagNearsRetention", "ScorerRevisionNotReached"),
    ),
    "no-card": (no_card, ("ScorerGpuMissing",)),
    "refused-runs": (refused_runs, ("TrainingFailed", "TrainingStale")),
    "no-relay": (no_relay, ("RelayAbsent",)),
    "destination-unavailable": (destination_unavailable, ("RelayStopped", "RelayLag", "RelayLagNearsRetention")),
}
"""Each fault, and the alerts that it triggers, in this order. It is active inside its block. The first fault starts the scorers
that the others need."""


def _steal(fleet: Fleet, ended: threading.Event) -> None:
    """Initialise one id of the first scorer, as a process with the same replica would, after each of its commits.

    Three recoveries without a commit would end the scorer.
    """
    victim, last_commits = fleet.scorers["scorer-0"], -1.0
    name = transactional_ids(f"{fleet.rig.name}/scorer/scorer-0")[0]
    while not ended.wait(POLL_SECONDS):
        commits = victim.metric("scorer_commits_total")
        if commits > last_commits:
            last_commits = commits
            with contextlib.suppress(KafkaException):
                Producer({"bootstrap.servers": fleet.broker.bootstrap_servers, "transactional.id": name}).init_transactions(5)
