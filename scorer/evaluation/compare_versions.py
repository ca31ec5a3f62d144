"""Score the events that Kafka retains with two model versions, and compare the scores and decisions.

This module joins no consumer group and writes nothing.

If one of the versions has joined fields (inputs from tables), both versions score the records of the feature log instead of the
events.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from confluent_kafka import Message

from publisher.kafka.partitions import Partition
from publisher.kafka.reader import TopicReader
from publisher.kafka.topics import Bounds
from publisher.runtime.time_range import LATEST_MS, TimeRange
from scorer.decoding.record_metadata import ListedMetadata
from scorer.evaluation.assessment import Assessment
from scorer.evaluation.labelled_comparison import BothAnswers
from scorer.evaluation.score_differences import Differences
from scorer.evaluation.score_events import EventAnswers, answers
from scorer.features.log import create_reader
from scorer.features.read import FeatureLogDecoder
from scorer.features.required_log import require_log
from scorer.models.loaded_model import LoadedModel
from scorer.settings import Settings

Progress = Callable[[int, int], None]
"""A callback with the number of completed offsets and the total number of offsets."""


class RecordTimes(NamedTuple):
    """The first and the last timestamp of records, both inclusive, in Unix ms."""

    first_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class LoggedShare:
    """The part of the events that a comparison read from the feature log.

    Attributes:
        topic: The topic of the feature log.
        records: The number of compared records.
        input_offsets: The number of offsets of the input topics in the time range of the records. It is an upper bound of the
            number of events, because transaction markers have offsets, too.
    """

    topic: str
    records: int
    input_offsets: int


@dataclass(frozen=True, slots=True)
class ComparisonRun:
    """The result of scoring events with two versions.

    Attributes:
        differences: The differences between the answers.
        seconds: The time of decoding and inference in seconds, by `champion` and `candidate`.
        spans: The offset range that was read, by partition.
        labelled: The quality figures of both versions on the same labelled events, the champion first; None if no topic of
            labels is configured.
        logged: The part of the events in the feature log; None if the events themselves were scored.
    """

    differences: Differences
    seconds: Mapping[str, float]
    spans: Mapping[Partition, Bounds]
    labelled: Assessment | None = None
    logged: LoggedShare | None = None


def spans(reader: TopicReader, topics: Sequence[str], window: TimeRange, newest: int | None) -> dict[Partition, Bounds]:
    """Return, for each partition of the topics, the offset range of the events in the time range `window`.

    If `newest` is not None, only about this number of the newest events is included, the same number from each partition.

    Raises:
        Fatal: With exit code 2 if a topic does not exist.
    """
    bounds_of = reader.spans(reader.partitions(topics))
    ends = {partition: bounds.high for partition, bounds in bounds_of.items()}
    starts = {partition: bounds.low for partition, bounds in bounds_of.items()}
    if window.to_ms is not None:
        ends = reader.since(window.to_ms, ends)
    if window.from_ms is not None:
        starts = {partition: max(starts[partition], offset) for partition, offset in reader.since(window.from_ms, ends).items()}
    if newest is not None:
        share = -(-newest // len(bounds_of))
        starts = {partition: max(start, ends[partition] - share) for partition, start in starts.items()}
    return {partition: Bounds(min(start, ends[partition]), ends[partition]) for partition, start in starts.items()}


def counted_range(window: TimeRange, newest: int | None, times: RecordTimes | None) -> TimeRange:
    """Return the time range in which to count input events, for a comparison with the number of records of the feature log.

    If `newest` is None, this is `window`. Otherwise it is the time range of the records that were read. If the feature log has
    only a sample of the events, N records cover a longer time than N events.

    Args:
        window: The requested time range.
        newest: The requested number of newest records; None for all records of the window.
        times: The times of the records that were read; None without records.
    """
    if newest is None or times is None:
        return window
    return TimeRange(max(0, times.first_ms), min(times.last_ms, LATEST_MS) + 1)


def compare(
    settings: Settings,
    champion: LoadedModel,
    candidate: LoadedModel,
    window: TimeRange,
    newest: int | None,
    progress: Progress,
) -> ComparisonRun:
    """Score every event of the window with both versions, and compare the answers.

    Args:
        settings: The settings with the topics and the broker.
        champion: The first version.
        candidate: The second version.
        window: The time range of the events.
        newest: The number of newest events to compare; None for all events of the window.
        progress: A callback with the number of completed offsets and the total number of offsets.

    Raises:
        Fatal: If a topic cannot be read, or if a version has joined fields and there is no feature log with its inputs.
        DependencyUnavailable: If a model server is unavailable.
    """
    reader = TopicReader(settings.kafka, f"{settings.name}.compare")
    topics = settings.input.topics
    feature_topic = settings.features.topic
    signatures = [version.model.signature() for version in (champion, candidate)]
    reads_log = require_log(settings.features, signatures)
    if reads_log and feature_topic is not None:
        topics = [feature_topic]
        champion, candidate = (_with_logged_inputs(version, settings) for version in (champion, candidate))
    every = spans(reader, topics, window, newest)
    total = sum(high - low for low, high in every.values())
    left = {partition: high - low for partition, (low, high) in every.items()}
    differences = Differences()
    timed = _Timed(champion, candidate)
    both = BothAnswers(settings.region) if settings.labels.topic else None
    times: RecordTimes | None = None
    progress(0, total)
    for batch in reader.read(every):
        for offsets, messages in _slices(batch.offsets, batch.messages, settings):
            values = [message.value() for message in messages]
            parts = ListedMetadata.from_messages(messages)
            answered = timed.answers(values, parts)
            if reads_log:
                times = _extended(times, parts.every_time)
            differences.add(batch.partition, offsets, values, *answered)
            if both is not None:
                both.add(batch.partition, offsets, parts, *answered)
        left[batch.partition] = every[batch.partition].high - batch.offsets[-1] - 1
        progress(total - sum(left.values()), total)
    progress(total, total)
    labelled = both.assessed(reader, settings, champion.model.signature()) if both is not None else None
    logged = None
    if reads_log and feature_topic is not None:
        inputs = spans(reader, settings.input.topics, counted_range(window, newest, times), None)
        logged = LoggedShare(feature_topic, differences.events, sum(high - low for low, high in inputs.values()))
    return ComparisonRun(differences, timed.seconds, every, labelled, logged)


def _with_logged_inputs(version: LoadedModel, settings: Settings) -> LoadedModel:
    """Return a copy of the version that scores records of the feature log in place of events."""
    return replace(version, decoder=FeatureLogDecoder(version.model.signature(), create_reader(settings)))


def _extended(earlier: RecordTimes | None, times: Sequence[int]) -> RecordTimes | None:
    """Return the range `earlier`, extended to include `times`; None if `earlier` is None and `times` is empty."""
    if not times:
        return earlier
    every = [*times, *(earlier or ())]
    return RecordTimes(min(every), max(every))


class _Timed:
    """Scores batches with both versions, and measures the time of each version."""

    # The version that scores a batch first alternates, so that neither has an advantage.

    def __init__(self, champion: LoadedModel, candidate: LoadedModel) -> None:
        self._models = {"champion": champion, "candidate": candidate}
        self._order = list(self._models)
        self.seconds = dict.fromkeys(self._models, 0.0)

    def answers(self, values: Sequence[bytes | None], parts: ListedMetadata) -> tuple[EventAnswers, EventAnswers]:
        answers_of: dict[str, EventAnswers] = {}
        self._order.reverse()
        for name in self._order:
            began = time.perf_counter()
            answers_of[name] = answers(self._models[name], values, parts)
            self.seconds[name] += time.perf_counter() - began
        return answers_of["champion"], answers_of["candidate"]


def _slices(
    offsets: Sequence[int], messages: Sequence[Message], settings: Settings
) -> Iterator[tuple[list[int], list[Message]]]:
    """Yield the offsets and messages in batches of the scorer's batch size.

    If the scorer is configured to skip tombstones, they are omitted.
    """
    skip = settings.input.tombstones == "skip"
    pairs = [pair for pair in zip(offsets, messages, strict=True) if not skip or pair[1].value() is not None]
    for start in range(0, len(pairs), settings.batching.max_events):
        some = pairs[start : start + settings.batching.max_events]
        yield [offset for offset, _ in some], [message for _, message in some]
