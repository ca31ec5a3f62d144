"""Analyze a canary: read scores, dead letters and shadow answers, pair them by event, and sum the differences of the pairs.

Joins no consumer group and writes nothing. The registry is read only if scores have several outputs.
"""

import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from publisher.errors import USAGE, Fatal
from publisher.kafka.partitions import Offsets, Partition, Spans
from publisher.kafka.reader import TopicReader
from publisher.kafka.topics import Bounds
from publisher.runtime.time_range import TimeRange
from scorer.evaluation.decision_output import DecidedOutputs, decided_output
from scorer.fetch.source import FetchedRecords, PartitionRecords
from scorer.models.registry_access import open_source
from scorer.rollout.canary_analysis.analysis_report import AnalysisReport, ReadRange
from scorer.rollout.canary_analysis.contestants import Contestants
from scorer.rollout.canary_analysis.key_strata import Cells
from scorer.rollout.canary_analysis.labelled_pairs import LabelledSums
from scorer.rollout.canary_analysis.pair_sums import PairSums
from scorer.rollout.canary_analysis.paired_metrics import Contest
from scorer.rollout.canary_analysis.rules import BRIER
from scorer.rollout.canary_analysis.topic_tail import ReadLag, TopicTail
from scorer.rollout.canary_analysis.verdict import CanaryVerdict
from scorer.settings import Settings

TAKE_SECONDS = 0.2
DROP_SECONDS = 2.0
STALL_SECONDS = 30.0
LABEL_SECONDS = 30.0
TOPIC_CHECK_SECONDS = 10.0  # between checks of the topics for added partitions


def answer_spans(bus: TopicReader, settings: Settings, window: TimeRange) -> dict[Partition, Bounds]:
    """Return, for each partition of the answer topics, the offset range that may hold answers to events in `window`.

    The answer topics are the topics of scores, dead letters and shadow answers.

    Raises:
        Fatal: With code 2 if a topic does not exist.
    """
    try:
        partitions = bus.partitions([settings.shadow_topic])
    except Fatal as error:
        if error.exit_code != USAGE:
            raise
        raise Fatal(
            f"topic {settings.shadow_topic!r} does not exist: no event has been scored by two versions",
            "start `scorer run --shadow`",
            USAGE,
        ) from error
    partitions += bus.partitions([settings.output.topic, settings.dead_letter.topic])
    spans = bus.spans(partitions)
    ends = {partition: bounds.high for partition, bounds in spans.items()}
    starts = {partition: bounds.low for partition, bounds in spans.items()}
    if window.to_ms is not None:
        ends = bus.since(window.to_ms, ends)
    if window.from_ms is not None:
        starts = {partition: max(starts[partition], offset) for partition, offset in bus.since(window.from_ms, ends).items()}
    return {partition: Bounds(min(start, ends[partition]), ends[partition]) for partition, start in starts.items()}


@dataclass(frozen=True, slots=True)
class AnalyzerLag:
    """How far an analysis is behind the topics that it reads, in seconds.

    A pair is the champion's and the candidate's answer to one event.

    Attributes:
        behind: The lag of the analysis behind the ends of the topics.
        pair_age: The time since the analysis last found a pair; None if it has found no pair.
    """

    # The analyzer records the log ends of all partitions from time to time. `behind` is the age of the newest record that was
    # reached in all partitions, or the time since the start before that.

    behind: float
    pair_age: float | None


class CanaryAnalyzer:
    """Pairs the answers of champion and candidate to the same events, and sums the differences of the pairs.

    Unreadable records are counted and skipped. After an error, only `close` may be called.

    Every reading call raises:
        Fatal: With code 2 if all records are unreadable, 3 if the broker rejects a read, 4 if it is unavailable.
        RegistryError: If scores have several outputs and the registry is unavailable.
    """

    def __init__(
        self,
        settings: Settings,
        contest: Contest,
        window: TimeRange,
        stretch: Spans,
        *,
        labels: bool = False,
        sums: LabelledSums | None = None,
        outputs: Mapping[str, str | None] = MappingProxyType({}),
    ) -> None:
        """Open the consumer and assign the partitions to read.

        Args:
            settings: The settings with the topics and the broker.
            contest: The digests of the champion and the candidate.
            window: The time range of the events whose answers are compared.
            stretch: For each partition, the offset to start at and the offset at which `to_end` stops.
            labels: Whether to also measure the squared errors of the scores against labels.
            sums: The result of an earlier measurement against labels. If given, `labels` has no effect.
            outputs: For each version, by digest: the name of the output that determines its decision. Missing names are read
                from the registry.
        """
        decided = DecidedOutputs(lambda digest: decided_output(open_source(settings), digest), outputs)
        self._pairs = PairSums(settings, contest, window, decided, labels=labels and sums is None)
        self._settings = settings
        self._sums = sums
        self._measured = 0.0
        self._bus = TopicReader(settings.kafka, f"{settings.name}.judge")
        self._starts = {partition: start for partition, (start, _) in stretch.items()}
        self.records: Counter[Partition] = Counter()
        """The number of records that were read, by partition."""
        self._stops = {partition: stop for partition, (_, stop) in stretch.items()}
        self._pairs.share_room(self._stops)
        now = time.monotonic()
        self._lag = ReadLag(now, self._stops)
        self._noted = now
        self._dropped_at = now
        self._checked = now
        self._paired: float | None = None
        self._feed = TopicTail(settings.kafka, f"{settings.name}.judge", self._starts)
        self.paired_sums = self._pairs.paired_sums
        self.sample = self._pairs.sample

    def to_end(self) -> Iterator[int]:
        """Read each partition up to its end offset. Yield the number of unread offsets before each read, and 0 at the end."""
        quiet = time.monotonic()
        while left := self._left():
            records = self._feed.read(TAKE_SECONDS)
            parts = [self._cut_at_stop(part) for part in records.partitions]
            self._add_records(replace(records, partitions=[part for part in parts if len(part.rows)]))
            self._drop_unmatched(self._stops)
            self._feed.pause_only(self._partitions_to_pause())
            if records.partitions:
                quiet = time.monotonic()
            elif time.monotonic() > quiet + STALL_SECONDS:
                (topic, number), missing = next(iter(left.items()))
                message = f"the last {missing} offsets of {topic}[{number}] were not received for {STALL_SECONDS:.0f} s"
                raise Fatal(message, "check the broker, and whether a transaction is still open")
            yield sum(left.values())
        yield 0

    def follow(self, seconds: float) -> AnalyzerLag:
        """Read new records for `seconds`, and return how far the analysis is behind then."""
        # Partitions that were added to the topics are read from their start.
        until = time.monotonic() + seconds
        self._add_partitions()
        while (now := time.monotonic()) < until:
            self._add_records(self._feed.read(min(TAKE_SECONDS, until - now)))
            self._drop_unmatched()
            self._feed.pause_only(self._pairs.slow)
        if now >= self._noted + seconds:
            self._lag.record_ends(now, self._bus.visible(self._stops))
            self._noted = now
        age = None if self._paired is None else now - self._paired
        return AnalyzerLag(self._lag.lag_seconds(now, self._feed.reached), age)

    def cells(self, now: float) -> dict[str, Cells]:
        """Return the sums of each rule's differences, by rule name. A cell is a group of event keys, see `key_strata`.

        `now` is the time in seconds of any monotonic clock.
        """
        # Each measurement of the errors against labels reads all labels again, so labels are read at most every LABEL_SECONDS.
        # In between, the sums of the rule `brier` are based on older offsets than the others. The report contains the offsets
        # of all sums.
        if self._pairs.labelled is not None and (self._sums is None or now >= self._measured + LABEL_SECONDS):
            self._sums = self.labelled_sums()
            self._measured = now
        return dict(self.paired_sums.cells) if self._sums is None else {**self.paired_sums.cells, BRIER: self._sums.cells}

    def reasons(self) -> dict[str, str]:
        """Return why a rule has no pairs, by the name of the rule. Rules without a known reason are left out."""
        reasons = self._pairs.missing_reasons()
        return reasons if self._sums is None or not self._sums.reason else {**reasons, BRIER: self._sums.reason}

    def labelled_sums(self, until: Offsets | None = None) -> LabelledSums:
        """Read the labels, and return the sums of the differences of both versions' squared errors over the pairs so far.

        Args:
            until: For each partition of labels, the end offset of reading; None for all labels.

        Raises:
            Fatal: If the analyzer was created without `labels`, or in the same cases as `LabelledPairs.differences`.
        """
        if self._pairs.labelled is None:
            raise Fatal("no rule of this analysis uses labels", "add the rule brier", USAGE)
        sums = self._pairs.labelled.differences(self._bus, self._settings, self._feed.reached, until)
        unknown = self._pairs.unknown
        return replace(sums, reason=f"{sums.reason}; {unknown}") if sums.reason and unknown else sums

    def report(self, rivals: Contestants, verdict: CanaryVerdict, behind: float | None = None) -> AnalysisReport:
        """Return the report of an analysis: the verdict, with the offsets and figures that the verdict is based on."""
        reached = self._feed.reached
        sums = self._sums
        read = {
            partition: ReadRange(self._starts[partition], end, self.records[partition]) for partition, end in reached.items()
        }
        if sums is not None:
            read |= {partition: ReadRange(*bounds, sums.records.get(partition, 0)) for partition, bounds in sums.labels.items()}
        return AnalysisReport(rivals, verdict, self.sample, self.dropped, read, behind, sums, self._pairs.outputs.names)

    @property
    def dropped(self) -> dict[str, int]:
        """The numbers of excluded answers and pairs, by reason (the keys of `analysis_report.DROPPED`)."""
        return self._pairs.dropped

    @property
    def scattered(self) -> list[Partition]:
        """The source partitions whose answers are spread over several partitions of one topic (see `PairSums.scattered`)."""
        return self._pairs.scattered

    def close(self) -> None:
        """Close the consumer."""
        self._feed.close()

    def _add_partitions(self) -> None:
        """Check the topics for added partitions every TOPIC_CHECK_SECONDS, and read added partitions from their start."""
        if time.monotonic() < self._checked + TOPIC_CHECK_SECONDS:
            return
        topics = sorted({topic for topic, _ in self._stops})
        added = self._bus.earliest(each for each in self._bus.partitions(topics) if each not in self._stops)
        if added:
            self._feed.add(added)
            self._starts |= added
            self._stops |= added
            self._pairs.share_room(self._stops)
        self._checked = time.monotonic()

    def _left(self) -> Offsets:
        """Return the number of offsets that are still to be read, by partition."""
        # A slow partition (see `PairSums.slow`) is left out if further reading of it can complete no pair: the partitions of
        # the other kind of answers are slow or read to their ends, and none of their answers waits for it.
        left = self._missing()
        return {
            partition: missing
            for partition, missing in left.items()
            if partition not in self._pairs.slow
            or self._has_unread_partner(partition, left)
            or self._pairs.is_needed(partition)
        }

    def _missing(self) -> Offsets:
        reached = self._feed.reached
        return {partition: stop - reached[partition] for partition, stop in self._stops.items() if reached[partition] < stop}

    def _partitions_to_pause(self) -> set[Partition]:
        """Return the partitions to pause: those read to their ends, or with many answers that wait for unread answers."""
        # A slow partition (see `PairSums.slow`) is paused while partitions that may hold partners of its answers are unread.
        left = self._missing()
        return {
            each
            for each in self._stops
            if each not in left or (each in self._pairs.slow and self._has_unread_partner(each, left))
        }

    def _has_unread_partner(self, partition: Partition, unread: Collection[Partition]) -> bool:
        """Return whether an unread partition may hold the partners (answers to the same events) of answers from `partition`."""
        # The partner of a scorer's answer is a shadow answer, and the reverse. Slow partitions (see `PairSums.slow`) are
        # ignored.
        is_shadow = partition[0] == self._settings.shadow_topic
        slow = self._pairs.slow
        return any((topic == self._settings.shadow_topic) != is_shadow and (topic, p) not in slow for topic, p in unread)

    def _cut_at_stop(self, part: PartitionRecords) -> PartitionRecords:
        count = int(np.searchsorted(part.offsets, self._stops[part.partition]))
        return PartitionRecords(part.partition, part.rows[:count], part.offsets[:count])

    def _add_records(self, records: FetchedRecords) -> None:
        pairs = self._pairs.pairs
        for part in records.partitions:
            self.records[part.partition] += len(part.rows)
        self._pairs.add_records(records)
        self._pairs.release_answers()
        if self._pairs.pairs > pairs:
            self._paired = time.monotonic()

    def _drop_unmatched(self, ends: Offsets | None = None) -> None:
        """Drop the answers that cannot get a partner (an answer to the same event), at most every DROP_SECONDS.

        `ends` are the log ends of the topics; None for the current ones.
        """
        if (now := time.monotonic()) >= self._dropped_at + DROP_SECONDS:
            self._pairs.drop_unmatched(self._feed.reached, self._bus.written(self._stops) if ends is None else ends)
            self._dropped_at = now
