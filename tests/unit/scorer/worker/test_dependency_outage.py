"""While servers are unavailable no event is read, and no event is lost."""

from publisher.runtime.dependency_wait import MODEL_SERVERS, SCHEMA_REGISTRY, DependencyUnavailable, Outages
from scorer.consumer.offset_metadata import OffsetMetadata
from scorer.worker.dependency_outage import BackendOutage
from tests.unit.scorer.consumer.group import TOPIC, Group, event


def test_partitions_are_read_again_from_the_committed_offsets_after_the_retry_delay() -> None:
    group, outages, now = Group(), Outages(), [0.0]
    group.committed[TOPIC, 0] = 5, OffsetMetadata()
    group.assign(0)
    group.waiting.append(event(5))
    assert group.offsets() == [5]
    outage = BackendOutage(group.intake, outages, lambda: now[0])
    assert not outage.blocks(0.0)
    group.reads.clear()
    outage.begin(DependencyUnavailable(MODEL_SERVERS, "no route", retry_seconds=2.0))
    assert group.reads == {(TOPIC, 0): 5}
    assert outage.blocks(0.0)
    assert group.paused() == {0}
    group.waiting += [lambda: group.assign(1), event(0, 1)]
    assert outage.blocks(0.0)  # the event of a new partition is read again later
    assert outage.blocks(0.0)
    assert group.paused() == {0, 1}
    now[0] = 2.0
    assert not outage.blocks(0.0)
    assert group.paused() == set()
    assert outages.summary() == "model-servers: no route"
    outage.end()
    assert outages.summary() is None


def test_consecutive_outages_are_reported() -> None:
    group, outages = Group(), Outages()
    outage = BackendOutage(group.intake, outages, lambda: 0.0)
    outage.begin(DependencyUnavailable(MODEL_SERVERS, "no route"))
    outage.begin(DependencyUnavailable(SCHEMA_REGISTRY, "timed out"))
    assert outages.summary() == "schema-registry: timed out"


def test_a_fallback_answers_once_model_servers_are_unavailable_for_the_configured_time() -> None:
    group, outages, now = Group(), Outages(), [10.0]
    outage = BackendOutage(group.intake, outages, lambda: now[0], fallback_seconds=3.0)
    error = DependencyUnavailable(MODEL_SERVERS, "no route", retry_seconds=2.0)
    assert not outage.use_fallback(error)
    outage.begin(error)
    now[0] = 12.0
    assert not outage.blocks(0.0)
    assert not outage.use_fallback(error)
    outage.begin(error)
    now[0] = 13.0  # before the next retry of the servers
    assert not outage.blocks(0.0)
    assert not outage.fallback_active()
    assert outage.use_fallback(error)
    assert outage.fallback_active()
    assert not outage.blocks(0.0)
    assert outages.is_unavailable(MODEL_SERVERS)
    assert outages.summary() is None  # no partition waits
    now[0] = 15.0
    assert not outage.fallback_active()  # the servers are tried again
    assert outage.use_fallback(error)
    assert outage.fallback_active()
    outage.end()
    assert not outage.fallback_active()
    assert not outages.is_unavailable(MODEL_SERVERS)


def test_a_fallback_answers_only_for_model_servers() -> None:
    group, outages = Group(), Outages()
    outage = BackendOutage(group.intake, outages, lambda: 0.0, fallback_seconds=0.0)
    assert outage.use_fallback(DependencyUnavailable(MODEL_SERVERS, "no route"))
    assert not outage.use_fallback(DependencyUnavailable(SCHEMA_REGISTRY, "timed out"))
    assert not outage.fallback_active()
