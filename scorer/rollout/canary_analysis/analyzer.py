"""Watches a candidate: reads scores, dead letters and the shadow's answers, joins them, and keeps the sums. It joins no group
and writes nothing."""

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
from scorer.models.registry_access import open_source
from scorer.rollout.canary_analysis.analysis_report import AnalysisReport, ReadRange
from scorer.rollout.canary_analysis.contestants import Contestants
from scorer.rollout.canary_analysis.fetch import Batch, Taken
from scorer.rollout.canary_analysis.key_strata import Cells
from scorer.rollout.canary_analysis.labelled_pairs import LabelledSums
from scorer.rollout.canary_analysis.pair_sums import PairSums
from scorer.rollout.canary_analysis.paired_metrics import Contest
from scorer.rollout.canary_analysis.topic_tail import ReadLag, TopicTail
from scorer.rollout.canary_analysis.verdict import BRIER, CanaryVerdict
from scorer.settings import Settings

TAKE_SECONDS = 0.2
SETTLE_SECONDS = 2.0
STALL_SECONDS = 30.0
LABEL_SECONDS = 30.0
LOOK_SECONDS = 10.0  # between looks at the topics, which may be given more partitions


def answer_spans(bus: TopicReader, settings: Settings, window: TimeRange) -> dict[Partition, Bounds]:
    """What may hold answers of the window: of scores, dead letters and the shadow's. Raises Fatal (2) where a topic is not
    there."""
    try:
        every = bus.partitions([settings.shadow_topic])
    except Fatal as error:
        if error.exit_code != USAGE:
            raise
        raise Fatal(
            f"no topic {settings.shadow_topic!r}: nothing has been scored twice", "start scorer run --shadow", USAGE
        ) from error
    every += bus.partitions([settings.output.topic, settings.dead_letter.topic])
    found = bus.spans(every)
    ends = {partition: bounds.high for partition, bounds in found.items()}
    starts = {partition: bounds.low for partition, bounds in found.items()}
    if window.to_ms is not None:
        ends = bus.since(window.to_ms, ends)
    if window.from_ms is not None:
        starts = {partition: max(starts[partition], at) for partition, at in bus.since(window.from_ms, ends).items()}
    return {partition: Bounds(min(start, ends[partition]), ends[partition]) for partition, start in starts.items()}


@dataclass(frozen=True, slots=True)
class AnalyzerLag:
    """`behind` is how many seconds the judge is behind, `pair_age` how many seconds ago the newest pair was taken in."""

    behind: float
    pair_age: float | None


class CanaryAnalyzer:
    """Of one contest, from the starts of `stretch` on. Unreadable records are skipped. Raises Fatal: 2 if all are unreadable, 3
    and 4 as Feed does; RegistryError if scores have several outputs and the registry is unavailable. After an error it must be
    closed."""

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
        """Start to read.

        Args:
            settings: name the topics and the broker.
            contest: the two versions.
            window: which events count.
            stretch: where reading starts, and where `to_end` stops.
            labels: whether the errors by label are measured, now and then.
            sums: errors by label that were measured before and that hold; with them nothing is measured.
            outputs: the outputs that versions decide on, by digest, as far as they are known; others are looked up.
        """
        decided = DecidedOutputs(lambda digest: decided_output(open_source(settings), digest), outputs)
        self._pairs = PairSums(settings, contest, window, decided, labels=labels and sums is None)
        self._settings, self._sums, self._measured = settings, sums, 0.0
        self._bus = TopicReader(settings.kafka, f"{settings.name}.judge")
        self._starts = {partition: start for partition, (start, _) in stretch.items()}
        self.records: Counter[Partition] = Counter()
        """How many records were taken in, by partition."""
        self._stops = {partition: stop for partition, (_, stop) in stretch.items()}
        self._pairs.share_room(self._stops)
        now = time.monotonic()
        self._lag, self._noted, self._settled, self._looked = ReadLag(now, self._stops), now, now, now
        self._paired: float | None = None
        self._feed = TopicTail(settings.kafka, f"{settings.name}.judge", self._starts)
        self.tally, self.sample = self._pairs.tally, self._pairs.sample

    def to_end(self) -> Iterator[int]:
        """Read everything up to the stops. Gives how many offsets are left, now and then."""
        quiet = time.monotonic()
        while left := self._left():
            taken = self._feed.take(TAKE_SECONDS)
            self._take_in(replace(taken, batches=[cut for each in taken.batches if len((cut := self._cut(each)).rows)]))
            self._settle(self._stops)
            self._feed.hold(self._held())
            if taken.batches:
                quiet = time.monotonic()
            elif time.monotonic() > quiet + STALL_SECONDS:
                (topic, number), missing = next(iter(left.items()))
                told = f"the last {missing} offsets of {topic}[{number}] did not come for {STALL_SECONDS:.0f} s"
                raise Fatal(told, "is the broker there, or does a transaction stay open?")
            yield sum(left.values())
        yield 0

    def follow(self, seconds: float) -> AnalyzerLag:
        """Read for so many seconds, also partitions that are added meanwhile; how far behind that leaves the judge."""
        until = time.monotonic() + seconds
        self._look()
        while (now := time.monotonic()) < until:
            self._take_in(self._feed.take(min(TAKE_SECONDS, until - now)))
            self._settle()
            self._feed.hold(self._pairs.slow)
        if now >= self._noted + seconds:
            self._lag.note(now, self._bus.visible(self._stops))
            self._noted = now
        age = None if self._paired is None else now - self._paired
        return AnalyzerLag(self._lag.behind(now, self._feed.reached), age)

    def cells(self, now: float) -> dict[str, Cells]:
        """Return the sums by rule at `now`, in seconds of any clock.

        Labels are read as a whole, so the sums by label are measured every LABEL_SECONDS only. In between they rest on older
        offsets than the other sums; the judgement names both.
        """
        if self._pairs.labelled is not None and (self._sums is None or now >= self._measured + LABEL_SECONDS):
            self._sums, self._measured = self.labelled_sums(), now
        return dict(self.tally.cells) if self._sums is None else {**self.tally.cells, BRIER: self._sums.cells}

    def reasons(self) -> dict[str, str]:
        """Return why a rule has no pairs, by rule, as far as it is known."""
        return {} if self._sums is None or not self._sums.reason else {BRIER: self._sums.reason}

    def labelled_sums(self, until: Offsets | None = None) -> LabelledSums:
        """Measure the errors of the pairs read so far by the labels before the ends `until`, or by all labels.

        Raises:
            Fatal: if labels are not asked for, or as `LabelledPairs.differences` does.
        """
        if self._pairs.labelled is None:
            raise Fatal("no rule asks for labels", "add the rule brier", USAGE)
        sums = self._pairs.labelled.differences(self._bus, self._settings, self._feed.reached, until)
        unknown = self._pairs.unknown
        return replace(sums, reason=f"{sums.reason}; {unknown}") if sums.reason and unknown else sums

    def judged(self, rivals: Contestants, verdict: CanaryVerdict, behind: float | None = None) -> AnalysisReport:
        """This verdict, with what it rests on."""
        reached, sums = self._feed.reached, self._sums
        read = {at: ReadRange(self._starts[at], end, self.records[at]) for at, end in reached.items()}
        if sums is not None:
            read |= {at: ReadRange(*bounds, sums.records.get(at, 0)) for at, bounds in sums.labels.items()}
        return AnalysisReport(rivals, verdict, self.sample, self.dropped, read, behind, sums, self._pairs.outputs.names)

    @property
    def dropped(self) -> dict[str, int]:
        """Answers that are in no pair, and pairs that do not count, by why."""
        return self._pairs.dropped

    def close(self) -> None:
        self._feed.close()

    def _look(self) -> None:
        """Read partitions that have been added, from their beginning, now and then."""
        if time.monotonic() < self._looked + LOOK_SECONDS:
            return
        topics = sorted({topic for topic, _ in self._stops})
        added = self._bus.earliest(at for at in self._bus.partitions(topics) if at not in self._stops)
        if added:
            self._feed.add(added)
            self._starts |= added
            self._stops |= added
            self._pairs.share_room(self._stops)
        self._looked = time.monotonic()

    def _left(self) -> Offsets:
        """The offsets that are missing, by partition. Those of a slow partition are of no use once the other side has ended, if
        none of its answers waits."""
        left = self._missing()
        return {
            partition: missing
            for partition, missing in left.items()
            if partition not in self._pairs.slow or self._awaited(partition, left) or self._pairs.awaited(partition)
        }

    def _missing(self) -> Offsets:
        reached = self._feed.reached
        return {partition: stop - reached[partition] for partition, stop in self._stops.items() if reached[partition] < stop}

    def _held(self) -> set[Partition]:
        """The partitions to hold back on the way to the stops: slow ones while the other side may come up to them."""
        left = self._missing()
        return {each for each in self._stops if each not in left or (each in self._pairs.slow and self._awaited(each, left))}

    def _awaited(self, held: Partition, left: Collection[Partition]) -> bool:
        """Whether the other side may still bring what the answers of a partition that is held back wait for."""
        mine = held[0] == self._settings.shadow_topic
        slow = self._pairs.slow
        return any((topic == self._settings.shadow_topic) != mine and (topic, p) not in slow for topic, p in left)

    def _cut(self, batch: Batch) -> Batch:
        count = int(np.searchsorted(batch.offsets, self._stops[batch.partition]))
        return Batch(batch.partition, batch.rows[:count], batch.offsets[:count])

    def _take_in(self, taken: Taken) -> None:
        pairs = self._pairs.pairs
        for batch in taken.batches:
            self.records[batch.partition] += len(batch.rows)
        self._pairs.take_in(taken)
        self._pairs.release()
        if self._pairs.pairs > pairs:
            self._paired = time.monotonic()

    def _settle(self, ends: Offsets | None = None) -> None:
        """Drop now and then what waits in vain, with all that is written now, or these `ends`, as the measure."""
        if (now := time.monotonic()) >= self._settled + SETTLE_SECONDS:
            self._pairs.settle(self._feed.reached, self._bus.written(self._stops) if ends is None else ends)
            self._settled = now
