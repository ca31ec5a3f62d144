"""While servers are away nothing is read, and nothing is given up."""

from publisher.runtime.dependencies import MODEL_SERVERS, SCHEMA_REGISTRY, DependencyUnavailable, Outages
from scorer.consumer.offset_metadata import OffsetMetadata
from scorer.worker.dependency_outage import Absence
from tests.unit.scorer.consumer.group import TOPIC, Group, event


def test_partitions_are_read_again_from_the_committed_offsets_when_it_makes_sense_to_ask() -> None:
    group, outages, now = Group(), Outages(), [0.0]
    group.committed[TOPIC, 0] = 5, OffsetMetadata()
    group.assign(0)
    group.waiting.append(event(5))
    assert group.offsets() == [5]
    absence = Absence(group.intake, outages, lambda: now[0])
    assert not absence.lasts(0.0)
    group.reads.clear()
    absence.begin(DependencyUnavailable(MODEL_SERVERS, "no route", retry_seconds=2.0))
    assert group.reads == {(TOPIC, 0): 5}
    assert absence.lasts(0.0)
    assert group.paused() == {0}
    group.waiting += [lambda: group.assign(1), event(0, 1)]
    assert absence.lasts(0.0)  # an event of a partition that has just come is put back
    assert absence.lasts(0.0)
    assert group.paused() == {0, 1}
    now[0] = 2.0
    assert not absence.lasts(0.0)
    assert group.paused() == set()
    assert outages.summary() == "model-servers: no route"
    absence.end()
    assert outages.summary() is None


def test_one_absence_after_the_other_is_told() -> None:
    group, outages = Group(), Outages()
    absence = Absence(group.intake, outages, lambda: 0.0)
    absence.begin(DependencyUnavailable(MODEL_SERVERS, "no route"))
    absence.begin(DependencyUnavailable(SCHEMA_REGISTRY, "timed out"))
    assert outages.summary() == "schema-registry: timed out"


def test_a_fallback_covers_model_servers_that_have_been_away_for_so_long() -> None:
    group, outages, now = Group(), Outages(), [10.0]
    absence = Absence(group.intake, outages, lambda: now[0], fallback_seconds=3.0)
    away = DependencyUnavailable(MODEL_SERVERS, "no route", retry_seconds=2.0)
    assert not absence.cover(away)
    absence.begin(away)
    now[0] = 12.0
    assert not absence.lasts(0.0)
    assert not absence.cover(away)
    absence.begin(away)
    now[0] = 13.0  # sooner than the servers wanted to be asked
    assert not absence.lasts(0.0)
    assert not absence.covered()
    assert absence.cover(away)
    assert absence.covered()
    assert not absence.lasts(0.0)
    assert outages.is_unavailable(MODEL_SERVERS)
    assert outages.summary() is None  # it holds nothing up
    now[0] = 15.0
    assert not absence.covered()  # they are asked again
    assert absence.cover(away)
    assert absence.covered()
    absence.end()
    assert not absence.covered()
    assert not outages.is_unavailable(MODEL_SERVERS)


def test_a_fallback_covers_nothing_but_model_servers() -> None:
    group, outages = Group(), Outages()
    absence = Absence(group.intake, outages, lambda: 0.0, fallback_seconds=0.0)
    assert absence.cover(DependencyUnavailable(MODEL_SERVERS, "no route"))
    assert not absence.cover(DependencyUnavailable(SCHEMA_REGISTRY, "timed out"))
    assert not absence.covered()
