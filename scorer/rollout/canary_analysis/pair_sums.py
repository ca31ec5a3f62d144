"""Sums of the pairs of one contest, from records in the order in which they are read. Pure.

The same records give the same sums, in any order of their partitions and in portions of any size.
"""

import logging
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from publisher.errors import USAGE, Fatal
from publisher.kafka.partitions import Offsets, Partition
from publisher.kafka.skipped_records import SkippedRecords
from publisher.runtime.time_range import ALWAYS, TimeRange
from scorer.evaluation.decision_output import UNKNOWN, DecidedOutputs
from scorer.native.byte_columns import Column, some
from scorer.rollout.canary_analysis import answer_records
from scorer.rollout.canary_analysis.answer_records import UnreadableAnswer
from scorer.rollout.canary_analysis.decision_sample import DecisionSample
from scorer.rollout.canary_analysis.fetch import Batch, Taken
from scorer.rollout.canary_analysis.join import JoinedPairs, JoinSide, MergeJoin, concatenate
from scorer.rollout.canary_analysis.key_strata import cell
from scorer.rollout.canary_analysis.labelled_pairs import LabelledPairs
from scorer.rollout.canary_analysis.paired_metrics import Contest, PairComparer, PairedSums, VersionAnswer
from scorer.rollout.canary_analysis.pending_answers import KeyedAnswer, PendingAnswers
from scorer.scores import formats
from scorer.settings import Settings

log = logging.getLogger(__name__)

MOST = 60_000  # answers that wait for another, of 500 bytes or so
MANY_UNREADABLE = 100  # records that are no score, before the first that is one
HINT = "check output.topic, output.format and schema_registry.url"


class PairSums:
    """Joins scores, dead letters and the shadow's answers, and keeps the sums.

    `tally` has the cells of each rule, `sample` the scores and decisions, `labelled` the pairs that wait for labels (None if no
    rule asks for them), `outputs` which output each version decides on. After an error it must not be used again.
    """

    def __init__(
        self, settings: Settings, contest: Contest, window: TimeRange, outputs: DecidedOutputs, *, labels: bool = False
    ) -> None:
        """Start without a record.

        Args:
            settings: name the topics and the format of scores.
            contest: the two versions.
            window: which events count.
            outputs: find the output that a version decides on.
            labels: whether pairs are kept for labels.
        """
        self._settings, self._window = settings, window
        self._comparer = PairComparer(contest)
        self._as_json = formats.as_json(settings)
        self._join, self._shelf = MergeJoin(MOST, 0), PendingAnswers()
        self._most_held = 0
        self._lanes: dict[Partition, set[Partition]] = {}
        self._skipped, self._read_any = SkippedRecords(log), False
        self._ends: dict[JoinSide, Offsets] = {}
        self.outputs = outputs
        self.tally, self.sample = PairedSums(), DecisionSample()
        self.labelled = LabelledPairs(settings.labels.max_events) if labels else None
        self.slow: set[Partition] = set()
        """Partitions whose answers are far ahead of the other side's: they are to be held back."""
        self.pairs = 0
        """How many pairs of the two versions were taken in."""

    def share_room(self, partitions: Collection[Partition]) -> None:
        """Give each of these partitions its share of the answers that may wait."""
        width = max(1, sum(topic == self._settings.output.topic for topic, _ in partitions))
        self._most_held, self._join.late = MOST // (2 * width), MOST // (4 * width)

    @property
    def dropped(self) -> dict[str, int]:
        """Answers that are in no pair, and pairs that do not count, by reason."""
        unreadable = self._skipped.counts.total()
        return {**self._join.dropped._asdict(), "foreign": self.tally.foreign, "unreadable": unreadable}

    @property
    def unknown(self) -> str:
        """Explain which versions have scores that do not count because it is unknown which output decides; empty if none."""
        return f"of {', '.join(sorted(self.outputs.unknown))} {UNKNOWN}" if self.outputs.unknown else ""

    def take_in(self, taken: Taken) -> None:
        """Take in records, of each partition in its order.

        Raises:
            Fatal: with code 2 if there are many records and not one score.
            RegistryError: if scores have several outputs and the registry is unavailable.
        """
        letters = [batch for batch in taken.batches if batch.partition[0] == self._settings.dead_letter.topic]
        answers = [batch for batch in taken.batches if batch.partition[0] != self._settings.dead_letter.topic]
        for batch in letters:
            self._letters(taken, batch)
        if answers:
            self._records(taken, answers)

    def settle(self, reached: Offsets, ends: Offsets) -> None:
        """Drop the answers that cannot have a partner. Call it now and then, after `take_in`.

        An answer waits until the other side has passed its event, and everything is read that was written by then: dead letters
        and failures of the shadow may come behind later scores. The pairs are the same at any pace of reading.

        Args:
            reached: the offset behind the last record that was taken in, by partition.
            ends: the offsets behind the last records that are written now, open transactions included.
        """
        for side in JoinSide:
            noted = self._ends.get(side, {})
            if all(reached.get(at, 0) >= end for at, end in noted.items() if at not in self.slow):
                self._join.settle(side)
                self._ends[side] = {at: end for at, end in ends.items() if self._side(at) is side}

    def release(self) -> None:
        """Release what no longer waits, and find the slow partitions. Call it after each `take_in`."""
        self._shelf.keep(self._join.tickets())
        for partition, lanes in self._lanes.items():
            held = max((self._join.held(self._side(partition), lane) for lane in lanes), default=0)
            if held > self._most_held:
                self.slow.add(partition)
            elif held <= self._most_held // 2:
                self.slow.discard(partition)

    def awaited(self, partition: Partition) -> bool:
        """Return whether answers of the other side wait for those of this partition."""
        other = self._side(partition).other
        return any(self._join.held(other, lane) for lane in self._lanes.get(partition, ()))

    def _side(self, partition: Partition) -> JoinSide:
        return JoinSide.SHADOW if partition[0] == self._settings.shadow_topic else JoinSide.ANSWERED

    def _records(self, taken: Taken, batches: Sequence[Batch]) -> None:
        values, lanes = taken.values, []
        for batch in batches:
            rows = batch.rows
            try:
                values = answer_records.in_json(values, rows, self._as_json)
                lanes.append(answer_records.group_by_partition(values, rows))
            except UnreadableAnswer:
                rows = self._readable(values, batch)
                values = answer_records.in_json(values, rows, self._as_json)
                lanes.append(answer_records.group_by_partition(values, rows))
            self._read_any |= len(rows) > 0
        first, pairs = self._shelf.put(values, taken.keys, taken.size), list[tuple[Partition, JoinedPairs]]()
        for batch, found in zip(batches, lanes, strict=True):
            side = self._side(batch.partition)
            self._lanes.setdefault(batch.partition, set()).update(found)
            pairs += [(lane, self._join.add(side, lane, offsets, rows + first)) for lane, (rows, offsets) in found.items()]
        self._pairs(pairs)

    def _readable(self, values: Column, batch: Batch) -> NDArray[np.int64]:
        """Return the rows of a batch that are scores, (n,). The others are counted and named.

        Raises Fatal (2) if there are many others and not one score: then the configuration names another topic or format.
        """
        faults = answer_records.faults(values, batch.rows, self._as_json)
        for row, fault in faults.items():
            self._skipped.skip(*batch.partition, int(batch.offsets[np.searchsorted(batch.rows, row)]), fault)
        rows = batch.rows[~np.isin(batch.rows, np.fromiter(faults, np.int64, len(faults)))]
        if (unreadable := self._skipped.counts.total()) >= MANY_UNREADABLE and not (self._read_any or len(rows)):
            topic, partition = batch.partition
            raise Fatal(f"{unreadable:,} records of {topic}[{partition}] and others are read, and none is a score", HINT, USAGE)
        return rows

    def _readable_pairs(self, of: NDArray[np.intp], lanes: Sequence[Partition], pairs: JoinedPairs) -> NDArray[np.bool_]:
        """Tell which pairs have two readable answers, (n,). The others are counted and named."""
        found = np.ones(len(pairs.offsets), np.bool_)
        for row in range(len(found)):
            try:
                self._shelf.answers(pairs.answered[row : row + 1])
                self._shelf.answers(pairs.shadow[row : row + 1])
            except UnreadableAnswer as error:
                found[row] = False
                topic, partition = lanes[of[row]]
                told = f"an answer to {topic}[{partition}]@{pairs.offsets[row]}: {error}"
                self._skipped.skip(topic, partition, int(pairs.offsets[row]), told)
        return found

    def _letters(self, taken: Taken, batch: Batch) -> None:
        for key, headers in zip(some(taken.keys, batch.rows), taken.headers(batch.rows), strict=True):
            if (letter := answer_records.read_dead_letter(headers or [])) is not None:
                lane, offset, answer = letter
                ticket = self._shelf.put_one(KeyedAnswer(answer, key))
                self._pairs(
                    [(lane, self._join.add(JoinSide.ANSWERED, lane, np.array([offset]), np.array([ticket]), late=True))]
                )

    def _pairs(self, found: Sequence[tuple[Partition, JoinedPairs]]) -> None:
        """Count the pairs of several source partitions."""
        found = [(lane, pairs) for lane, pairs in found if len(pairs.offsets)]
        if not found:
            return
        lanes, pairs = [lane for lane, _ in found], concatenate([pairs for _, pairs in found])
        of = np.repeat(np.arange(len(lanes)), [len(each.offsets) for _, each in found])
        try:
            answered, shadow = (self._shelf.answers(side) for side in (pairs.answered, pairs.shadow))
        except UnreadableAnswer:
            readable = self._readable_pairs(of, lanes, pairs)
            of, pairs = of[readable], JoinedPairs(*(column[readable] for column in pairs))
            answered, shadow = (self._shelf.answers(side) for side in (pairs.answered, pairs.shadow))
        if self._window != ALWAYS:
            inside = [row for row, each in enumerate(shadow) if self._window.contains(each.event_ms)]
            if len(inside) < len(shadow):
                answered, shadow = ([side[row] for row in inside] for side in (answered, shadow))
                of, pairs = of[inside], JoinedPairs(*(column[inside] for column in pairs))
        self._count(lanes, of, pairs, self.outputs.answers(answered), self.outputs.answers(shadow))

    def _count(
        self,
        lanes: Sequence[Partition],
        of: NDArray[np.intp],
        pairs: JoinedPairs,
        answered: Sequence[VersionAnswer],
        shadow: Sequence[VersionAnswer],
    ) -> None:
        """Count pairs of the window. `of` says which source partition each is of."""
        found, keys = self._comparer.differences(answered, shadow), self._shelf.hashes(pairs.answered)
        places = zip(keys, of.tolist(), pairs.offsets.tolist(), strict=True)
        cells = np.array([cell(key, lanes[at], offset) for key, at, offset in places], np.intp)
        self.tally.add(cells, found)
        for at, lane in enumerate(lanes):
            rows = np.flatnonzero(of == at)
            self.sample.add(lane, pairs.offsets[rows], found.part(rows))
            if self.labelled is not None:
                both = rows[found.where(lambda kind: kind.scored)[rows]].tolist()
                sides = found.ordered(both, answered, shadow)
                self.labelled.add(
                    lane, [(int(pairs.offsets[n]), int(cells[n]), *side) for n, side in zip(both, sides, strict=True)]
                )
        self.pairs += sum(count for kind, count in found.counts() if kind is not None)
