"""Watches a candidate: reads scores, dead letters and the shadow's answers, joins them, and keeps the sums. It joins no group
and writes nothing."""

import logging
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from publisher.errors import USAGE, Fatal
from publisher.kafka.partitions import Offsets, Partition, Spans
from publisher.kafka.reader import TopicReader
from publisher.kafka.skipped import SkippedRecords
from publisher.kafka.topics import Bounds
from publisher.process.time_window import ALWAYS, TimeWindow
from scorer.events.native.texts import Column, some
from scorer.rollout.decided_outputs import UNKNOWN, DecidedOutputs, decided_output
from scorer.rollout.judgement import records
from scorer.rollout.judgement.cells import Cells, cell
from scorer.rollout.judgement.differences import Answer, Comparer, Contest, Tally
from scorer.rollout.judgement.feed import Feed, Lag
from scorer.rollout.judgement.labelled import LabelledPairs, LabelledSums
from scorer.rollout.judgement.pairing import MergeJoin, Pairs, Side, joined
from scorer.rollout.judgement.records import Unreadable
from scorer.rollout.judgement.report import Judgement
from scorer.rollout.judgement.sample import Sample
from scorer.rollout.judgement.shelf import Shelf, Told
from scorer.rollout.judgement.taken import Batch, Taken
from scorer.rollout.judgement.verdict import BRIER, Verdict
from scorer.rollout.judgement.versions import Rivals
from scorer.scores import formats
from scorer.servables.source import open_source
from scorer.settings import Settings

log = logging.getLogger(__name__)

MOST = 60_000  # answers that wait for another, of 500 bytes or so
TAKE_SECONDS = 0.2
SETTLE_SECONDS = 2.0
STALL_SECONDS = 30.0
LABEL_SECONDS = 30.0
LOOK_SECONDS = 10.0  # between looks at the topics, which may be given more partitions
MANY_UNREADABLE = 100  # records that are no score, before the first that is one
HINT = "check output.topic, output.format and schema_registry.url"


def spans(bus: TopicReader, settings: Settings, window: TimeWindow) -> dict[Partition, Bounds]:
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
class Pace:
    """`behind` is how many seconds the judge is behind, `pair_age` how many seconds ago the newest pair was taken in."""

    behind: float
    pair_age: float | None


class Watch:
    """Of one contest, from the starts of `stretch` on. Unreadable records are skipped. Raises Fatal: 2 if all are unreadable, 3
    and 4 as Feed does; RegistryError if scores have several outputs and the registry is unavailable. After an error it must be
    closed."""

    def __init__(
        self,
        settings: Settings,
        contest: Contest,
        window: TimeWindow,
        stretch: Spans,
        *,
        labels: bool = False,
        sums: LabelledSums | None = None,
    ) -> None:
        """Start to read.

        Args:
            settings: name the topics and the broker.
            contest: the two versions.
            window: which events count.
            stretch: where reading starts, and where `to_end` stops.
            labels: whether the errors by label are measured, now and then.
            sums: errors by label that were measured before and that hold; with them nothing is measured.
        """
        self._labelled = LabelledPairs(settings.labels.max_events) if labels and sums is None else None
        self._settings, self._window, self._sums, self._measured = settings, window, sums, 0.0
        self._outputs = DecidedOutputs(lambda digest: decided_output(open_source(settings), digest))
        self._comparer = Comparer(contest)
        self._as_json = formats.as_json(settings)
        self._bus = TopicReader(settings.kafka, f"{settings.name}.judge")
        starts = {partition: start for partition, (start, _) in stretch.items()}
        self._stops = {partition: stop for partition, (_, stop) in stretch.items()}
        self._join, self._shelf = MergeJoin(MOST, 0), Shelf()
        self._most_held = 0
        self._share_room()
        self._lanes: dict[Partition, set[Partition]] = {}
        self._slow: set[Partition] = set()
        now = time.monotonic()
        self._lag, self._noted, self._settled, self._looked = Lag(now, self._stops), now, now, now
        self._paired: float | None = None
        self._feed = Feed(settings.kafka, f"{settings.name}.judge", starts)
        self._skipped, self._read_any = SkippedRecords(log), False
        self.tally, self.sample = Tally(), Sample()

    def to_end(self) -> Iterator[int]:
        """Read everything up to the stops. Gives how many offsets are left, now and then."""
        quiet = time.monotonic()
        while left := self._left():
            taken = self._feed.take(TAKE_SECONDS)
            self._take_in(replace(taken, batches=[cut for each in taken.batches if len((cut := self._cut(each)).rows)]))
            self._feed.hold(self._slow | {each for each, stop in self._stops.items() if self._feed.reached[each] >= stop})
            if taken.batches:
                quiet = time.monotonic()
            elif time.monotonic() > quiet + STALL_SECONDS:
                (topic, number), missing = next(iter(left.items()))
                told = f"the last {missing} offsets of {topic}[{number}] did not come for {STALL_SECONDS:.0f} s"
                raise Fatal(told, "is the broker there, or does a transaction stay open?")
            yield sum(left.values())
        yield 0

    def follow(self, seconds: float) -> Pace:
        """Read for so many seconds, also partitions that are added meanwhile; how far behind that leaves the judge."""
        until = time.monotonic() + seconds
        self._look()
        while (now := time.monotonic()) < until:
            self._take_in(self._feed.take(min(TAKE_SECONDS, until - now)))
            self._feed.hold(self._slow)
        if now >= self._noted + seconds:
            self._lag.note(now, self._bus.visible(self._stops))
            self._noted = now
        age = None if self._paired is None else now - self._paired
        return Pace(self._lag.behind(now, self._feed.reached), age)

    def cells(self, now: float) -> dict[str, Cells]:
        """Return the sums by rule at `now`, in seconds of any clock.

        Labels are read as a whole, so the sums by label are measured every LABEL_SECONDS only. In between they rest on older
        offsets than the other sums; the judgement names both.
        """
        if self._labelled is not None and (self._sums is None or now >= self._measured + LABEL_SECONDS):
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
        if self._labelled is None:
            raise Fatal("no rule asks for labels", "add the rule brier", USAGE)
        sums = self._labelled.differences(self._bus, self._settings, self._feed.reached, until)
        unknown = ", ".join(sorted(self._outputs.unknown))
        return replace(sums, reason=f"{sums.reason}; of {unknown} {UNKNOWN}") if sums.reason and unknown else sums

    def judged(self, rivals: Rivals, verdict: Verdict, behind: float | None = None) -> Judgement:
        """This verdict, with what it rests on."""
        labels = {} if self._sums is None else {at: bounds[1] for at, bounds in self._sums.labels.items()}
        return Judgement(rivals, verdict, self.sample, self.dropped, self._feed.reached | labels, behind, self._sums)

    @property
    def dropped(self) -> dict[str, int]:
        """Answers that are in no pair, and pairs that do not count, by why."""
        unreadable = self._skipped.counts.total()
        return {**self._join.dropped._asdict(), "foreign": self.tally.foreign, "unreadable": unreadable}

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
            self._stops |= added
            self._share_room()
        self._looked = time.monotonic()

    def _share_room(self) -> None:
        """Each partition's share of the answers that may wait."""
        width = max(1, sum(topic == self._settings.output.topic for topic, _ in self._stops))
        self._most_held, self._join.late = MOST // (2 * width), MOST // (4 * width)

    def _left(self) -> Offsets:
        """The offsets that are missing, by partition. What one side holds back is of no use once the other side has ended."""
        reached = self._feed.reached
        left = {partition: stop - reached[partition] for partition, stop in self._stops.items() if reached[partition] < stop}
        return {
            partition: missing
            for partition, missing in left.items()
            if partition not in self._slow or self._awaited(partition, left)
        }

    def _awaited(self, held: Partition, left: Collection[Partition]) -> bool:
        """Whether the other side may still bring what the answers of a partition that is held back wait for."""
        mine = held[0] == self._settings.shadow_topic
        return any((topic == self._settings.shadow_topic) != mine and (topic, p) not in self._slow for topic, p in left)

    def _cut(self, batch: Batch) -> Batch:
        count = int(np.searchsorted(batch.offsets, self._stops[batch.partition]))
        return Batch(batch.partition, batch.rows[:count], batch.offsets[:count])

    def _take_in(self, taken: Taken) -> None:
        letters = [batch for batch in taken.batches if batch.partition[0] == self._settings.dead_letter.topic]
        answers = [batch for batch in taken.batches if batch.partition[0] != self._settings.dead_letter.topic]
        for batch in letters:
            self._letters(taken, batch)
        if answers:
            self._records(taken, answers)
        now = time.monotonic()
        if now >= self._settled + SETTLE_SECONDS and self._letters_read():
            self._join.settle()
            self._settled = now
        self._shelf.keep(self._join.tickets())
        self._find_slow()

    def _records(self, taken: Taken, batches: Sequence[Batch]) -> None:
        values, lanes = taken.values, []
        for batch in batches:
            rows = batch.rows
            try:
                values = records.in_json(values, rows, self._as_json)
                lanes.append(records.lanes(values, rows))
            except Unreadable:
                rows = self._readable(values, batch)
                values = records.in_json(values, rows, self._as_json)
                lanes.append(records.lanes(values, rows))
            self._read_any |= len(rows) > 0
        first, pairs = self._shelf.put(values, taken.keys, taken.size), list[tuple[Partition, Pairs]]()
        for batch, found in zip(batches, lanes, strict=True):
            side = Side.SHADOW if batch.partition[0] == self._settings.shadow_topic else Side.ANSWERED
            self._lanes.setdefault(batch.partition, set()).update(found)
            pairs += [(lane, self._join.add(side, lane, offsets, rows + first)) for lane, (rows, offsets) in found.items()]
        self._pairs(pairs)

    def _readable(self, values: Column, batch: Batch) -> NDArray[np.int64]:
        """Return the rows of a batch that are scores, (n,). The others are counted and named.

        Raises Fatal (2) if there are many others and not one score: then the configuration names another topic or format.
        """
        faults = records.faults(values, batch.rows, self._as_json)
        for row, fault in faults.items():
            self._skipped.skip(*batch.partition, int(batch.offsets[np.searchsorted(batch.rows, row)]), fault)
        rows = batch.rows[~np.isin(batch.rows, np.fromiter(faults, np.int64, len(faults)))]
        if (unreadable := self._skipped.counts.total()) >= MANY_UNREADABLE and not (self._read_any or len(rows)):
            topic, partition = batch.partition
            raise Fatal(f"{unreadable:,} records of {topic}[{partition}] and others are read, and none is a score", HINT, USAGE)
        return rows

    def _readable_pairs(self, of: NDArray[np.intp], lanes: Sequence[Partition], pairs: Pairs) -> NDArray[np.bool_]:
        """Tell which pairs have two readable answers, (n,). The others are counted and named."""
        found = np.ones(len(pairs.offsets), np.bool_)
        for row in range(len(found)):
            try:
                self._shelf.answers(pairs.answered[row : row + 1])
                self._shelf.answers(pairs.shadow[row : row + 1])
            except Unreadable as error:
                found[row] = False
                topic, partition = lanes[of[row]]
                told = f"an answer to {topic}[{partition}]@{pairs.offsets[row]}: {error}"
                self._skipped.skip(topic, partition, int(pairs.offsets[row]), told)
        return found

    def _letters_read(self) -> bool:
        """Whether the dead letters that were there at the start are read: what has waited for one of them need wait no more."""
        letters = self._settings.dead_letter.topic
        return all(self._feed.reached[each] >= stop for each, stop in self._stops.items() if each[0] == letters)

    def _letters(self, taken: Taken, batch: Batch) -> None:
        for key, headers in zip(some(taken.keys, batch.rows), taken.headers(batch.rows), strict=True):
            if (letter := records.letter(headers or [])) is not None:
                lane, offset, answer = letter
                ticket = self._shelf.put_one(Told(answer, key))
                self._pairs([(lane, self._join.add(Side.ANSWERED, lane, np.array([offset]), np.array([ticket])))])

    def _pairs(self, found: Sequence[tuple[Partition, Pairs]]) -> None:
        """Count the pairs of several source partitions."""
        found = [(lane, pairs) for lane, pairs in found if len(pairs.offsets)]
        if not found:
            return
        lanes, pairs = [lane for lane, _ in found], joined([pairs for _, pairs in found])
        of = np.repeat(np.arange(len(lanes)), [len(each.offsets) for _, each in found])
        try:
            answered, shadow = (self._shelf.answers(side) for side in (pairs.answered, pairs.shadow))
        except Unreadable:
            readable = self._readable_pairs(of, lanes, pairs)
            of, pairs = of[readable], Pairs(*(column[readable] for column in pairs))
            answered, shadow = (self._shelf.answers(side) for side in (pairs.answered, pairs.shadow))
        if self._window != ALWAYS:
            inside = [row for row, each in enumerate(shadow) if self._window.holds(each.event_ms)]
            if len(inside) < len(shadow):
                answered, shadow = ([side[row] for row in inside] for side in (answered, shadow))
                of, pairs = of[inside], Pairs(*(column[inside] for column in pairs))
        self._count(lanes, of, pairs, self._outputs.answers(answered), self._outputs.answers(shadow))

    def _count(
        self,
        lanes: Sequence[Partition],
        of: NDArray[np.intp],
        pairs: Pairs,
        answered: Sequence[Answer],
        shadow: Sequence[Answer],
    ) -> None:
        """Count pairs of the window. `of` says which source partition each is of."""
        found, keys = self._comparer.differences(answered, shadow), self._shelf.hashes(pairs.answered)
        places = zip(keys, of.tolist(), pairs.offsets.tolist(), strict=True)
        cells = np.array([cell(key, lanes[at], offset) for key, at, offset in places], np.intp)
        self.tally.add(cells, found)
        for at, lane in enumerate(lanes):
            rows = np.flatnonzero(of == at)
            self.sample.add(lane, pairs.offsets[rows], found.part(rows))
            if self._labelled is not None:
                both = rows[found.where(lambda kind: kind.scored)[rows]].tolist()
                sides = found.ordered(both, answered, shadow)
                self._labelled.add(
                    lane, [(int(pairs.offsets[n]), int(cells[n]), *side) for n, side in zip(both, sides, strict=True)]
                )
        if any(kind is not None for kind in found.kinds):
            self._paired = time.monotonic()

    def _find_slow(self) -> None:
        """Which partitions are to be held back, because their side is far ahead of the other."""
        for partition, lanes in self._lanes.items():
            side = Side.SHADOW if partition[0] == self._settings.shadow_topic else Side.ANSWERED
            held = max((self._join.held(side, lane) for lane in lanes), default=0)
            if held > self._most_held:
                self._slow.add(partition)
            elif held <= self._most_held // 2:
                self._slow.discard(partition)
