"""The search for the feature records of scores in a partition of the log."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from publisher.kafka.partitions import Offsets, Partition
from publisher.kafka.reader import PartitionBatch, TopicReader
from scorer.features.log import FeatureLog, LogSearch, ScoredEvent
from scorer.features.read import FeatureRecord, FeatureSource
from tests.unit.scorer.minimal import minimal

DIGEST = "sha256:" + "a" * 64


def scored(offset: int, at_ms: int, partition: int = 0, digest: str = DIGEST) -> ScoredEvent:
    return ScoredEvent("flights", partition, offset, 1_000 + offset, at_ms, digest)


def record(event: ScoredEvent, **changes: Any) -> FeatureRecord:
    source = FeatureSource(event.topic, event.partition, event.offset)
    values = {"event_ms": event.event_ms, "scored_ms": event.scored_ms, "digest": event.digest, **changes}
    return FeatureRecord(id="e", source=source, version="v1", inputs={}, **values)


def search(*events: ScoredEvent) -> LogSearch:
    searched = LogSearch()
    for event in events:
        searched.add(event)
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


class LogMessage:
    """A message with a feature record."""

    def __init__(self, scored_event: ScoredEvent) -> None:
        self._scored = scored_event

    def value(self) -> bytes:
        source = {"topic": self._scored.topic, "partition": self._scored.partition, "offset": self._scored.offset}
        times = {"event_ms": self._scored.event_ms, "scored_ms": self._scored.scored_ms}
        version = {"model": "m", "version": "1", "digest": self._scored.digest, "role": "champion", "revision": 1}
        return json.dumps({"id": "e", "source": source, **times, **version, "inputs": {"a": self._scored.offset}}).encode()

    def offset(self) -> int:
        return self._scored.offset


class LogReader:
    """A reader of a log in memory, which counts the consumers that it opens and the batches that are read."""

    def __init__(self, partitions: Mapping[int, list[ScoredEvent]]) -> None:
        self._messages = {("log", number): list(map(LogMessage, events)) for number, events in partitions.items()}
        self.consumers = 0
        self.batches = 0

    def partitions(self, _: Any) -> list[Partition]:
        return list(self._messages)

    def visible(self, partitions: Any) -> Offsets:
        return {partition: len(self._messages[partition]) for partition in partitions}

    def since(self, unix_ms: int, ends: Offsets) -> Offsets:
        return {
            partition: sum(message._scored.event_ms < unix_ms for message in self._messages[partition]) for partition in ends
        }

    def read(self, spans: Mapping[Partition, tuple[int, int]]) -> Iterator[PartitionBatch]:
        self.consumers += 1
        for at in range(max(end for _, end in spans.values())):
            for partition, (start, end) in spans.items():
                if start <= at < end:
                    self.batches += 1
                    yield PartitionBatch(partition, [at], cast(Any, [self._messages[partition][at]]))


def test_scores_of_several_partitions_are_found_with_one_consumer() -> None:
    events = {number: [scored(offset, 50 + offset, number) for offset in range(40)] for number in range(4)}
    reader = LogReader(events)
    feature_log = FeatureLog(minimal(features={"topic": "log"}), cast(TopicReader, reader))
    logged_events = [events[0][3], events[0][9], events[2][5], events[3][9]]
    records = feature_log.find([*logged_events, scored(7, 1, 1)])
    assert {event: logged.record.inputs for event, logged in records.items()} == {
        event: {"a": event.offset} for event in logged_events
    }
    assert reader.consumers == 1
    assert reader.batches < 40  # the log is not read to its end
