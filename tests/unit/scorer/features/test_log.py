"""The search for the feature records of scores in a partition of the log."""

from typing import Any

from scorer.features.log import LogSearch, ScoredEvent
from scorer.features.read import FeatureRecord, FeatureSource

DIGEST = "sha256:" + "a" * 64


def scored(offset: int, at_ms: int, partition: int = 0, digest: str = DIGEST) -> ScoredEvent:
    return ScoredEvent("flights", partition, offset, 1_000 + offset, at_ms, digest)


def record(of: ScoredEvent, **changes: Any) -> FeatureRecord:
    source = FeatureSource(of.topic, of.partition, of.offset)
    values = {"event_ms": of.event_ms, "scored_ms": of.scored_ms, "digest": of.digest, **changes}
    return FeatureRecord(id="e", source=source, version="v1", inputs={}, **values)


def search(*wanted: ScoredEvent) -> LogSearch:
    searched = LogSearch()
    for each in wanted:
        searched.add(each)
    return searched


def test_the_search_starts_at_the_earliest_event_and_ends_with_the_last_record() -> None:
    searched = search(scored(7, 50), scored(9, 60))
    assert searched.earliest_ms == 1_007
    assert searched.take(record(scored(7, 50))) == scored(7, 50)
    assert searched.take(record(scored(8, 50))) is None
    assert not searched.is_complete
    assert searched.take(record(scored(9, 60))) == scored(9, 60)
    assert searched.is_complete


def test_a_later_record_of_the_partition_ends_the_search_for_a_missing_record() -> None:
    searched = search(scored(7, 50))
    assert searched.take(record(scored(6, 50))) is None
    assert not searched.is_complete
    assert searched.take(record(scored(8, 50))) is None
    assert searched.is_complete


def test_records_of_another_partition_do_not_end_the_search() -> None:
    searched = search(scored(7, 50))
    assert searched.take(record(scored(9, 90, partition=2))) is None
    assert not searched.is_complete


def test_an_event_that_was_scored_twice_has_the_record_of_each_score() -> None:
    searched = search(scored(7, 90))
    assert searched.take(record(scored(7, 50))) is None
    assert searched.take(record(scored(8, 51))) is None
    assert not searched.is_complete
    assert searched.take(record(scored(7, 90))) == scored(7, 90)
    assert searched.is_complete


def test_the_record_of_another_version_does_not_belong_to_the_score() -> None:
    searched = search(scored(7, 50))
    assert searched.take(record(scored(7, 50, digest="sha256:" + "b" * 64))) is None
    assert not searched.is_complete
