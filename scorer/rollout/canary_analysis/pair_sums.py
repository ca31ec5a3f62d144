"""Sum the pairs of one contest, from records in the order in which they are read. Pure.

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
from scorer.fetch.source import FetchedRecords, PartitionRecords
from scorer.native.byte_columns import Column, some
from scorer.rollout.canary_analysis import answer_records
from scorer.rollout.canary_analysis.answer_records import UnreadableAnswer
from scorer.rollout.canary_analysis.decision_sample import DecisionSample
from scorer.rollout.canary_analysis.join import JoinedPairs, JoinSide, MergeJoin, concatenate
from scorer.rollout.canary_analysis.key_strata import cell
from scorer.rollout.canary_analysis.labelled_pairs import LabelledPairs
from scorer.rollout.canary_analysis.paired_metrics import Contest, PairComparer, PairedSums, VersionAnswer
from scorer.rollout.canary_analysis.pending_answers import KeyedAnswer, PendingAnswers
from scorer.scores import formats
from scorer.settings import Settings

log = logging.getLogger(__name__)

MOST = 60_000  # answers that wait for another, of 500 bytes or so
MANY_UNREADABLE = 100  # records that are no score record, without a single one that is
HINT = "check output.topic, output.format and schema_registry.url"


class PairSums:
    """Join scores, dead letters and shadow answers, and keep the sums. After an error it must not be used again.

    Attributes:
        tally: The cells of each rule.
        sample: The decisions and a sample of the scores.
        labelled: The pairs that wait for labels; None if no rule needs labels.
        outputs: The deciding output of each version.
        slow: The partitions whose answers are far ahead of the other side's; the caller pauses them.
        pairs: The number of pairs of the two versions.
    """

    def __init__(
        self, settings: Settings, contest: Contest, window: TimeRange, outputs: DecidedOutputs, *, labels: bool = False
    ) -> None:
        """Create empty sums.

        Args:
            settings: The settings with the topics and the format of scores.
            contest: The two versions.
            window: The time range of the events that count.
            outputs: The lookup of the output that a version decides on.
            labels: Whether to keep pairs for labels.
        """
        self._settings = settings
        self._window = window
        self._comparer = PairComparer(contest)
        self._as_json = formats.as_json(settings)
        self._join = MergeJoin(MOST, 0)
        self._waiting = PendingAnswers()
        self._most_held = 0
        self._lanes: dict[Partition, set[Partition]] = {}
        self._skipped = SkippedRecords(log)
        self._read_any = False
        self._ends: dict[JoinSide, Offsets] = {}
        self.outputs = outputs
        self.tally = PairedSums()
        self.sample = DecisionSample()
        self.labelled = LabelledPairs(settings.labels.max_events) if labels else None
        self.slow: set[Partition] = set()
        self.pairs = 0

    def share_room(self, partitions: Collection[Partition]) -> None:
        """Divide the number of answers that may wait among these partitions."""
        width = max(1, sum(topic == self._settings.output.topic for topic, _ in partitions))
        self._most_held = MOST // (2 * width)
        self._join.late = MOST // (4 * width)

    @property
    def dropped(self) -> dict[str, int]:
        """The numbers of answers in no pair and of pairs that do not count, by reason."""
        unreadable = self._skipped.counts.total()
        return {**self._join.dropped._asdict(), "foreign": self.tally.foreign, "unreadable": unreadable}

    @property
    def unknown(self) -> str:
        """The versions whose scores do not count because their deciding output is unknown, as a message; empty if none."""
        return f"of {', '.join(sorted(self.outputs.unknown))} {UNKNOWN}" if self.outputs.unknown else ""

    def take_in(self, records: FetchedRecords) -> None:
        """Add records, of each partition in its order.

        Raises:
            Fatal: With code 2 if there are many records and none of them is a score.
            RegistryError: If scores have several outputs and the registry is unavailable.
        """
        letters = [part for part in records.partitions if part.partition[0] == self._settings.dead_letter.topic]
        answers = [part for part in records.partitions if part.partition[0] != self._settings.dead_letter.topic]
        for part in letters:
            self._letters(records, part)
        if answers:
            self._records(records, answers)

    def settle(self, reached: Offsets, ends: Offsets) -> None:
        """Drop the answers that cannot have a partner. Call it periodically, after `take_in`.

        An answer waits until the other side has passed its event and everything that was written by then is read: dead letters
        and failures of the shadow may follow later scores. The pairs are the same at any pace of reading.

        Args:
            reached: The offset behind the last record that was added, by partition.
            ends: The offsets behind the last records that are written now, including open transactions.
        """
        for side in JoinSide:
            noted = self._ends.get(side, {})
            if all(reached.get(at, 0) >= end for at, end in noted.items() if at not in self.slow):
                self._join.settle(side)
                self._ends[side] = {at: end for at, end in ends.items() if self._side(at) is side}

    def release(self) -> None:
        """Release answers that no longer wait, and determine the slow partitions. Call it after each `take_in`."""
        self._waiting.keep(self._join.tickets())
        for partition, lanes in self._lanes.items():
            held = max((self._join.held(self._side(partition), lane) for lane in lanes), default=0)
            if held > self._most_held:
                self.slow.add(partition)
            elif held <= self._most_held // 2:
                self.slow.discard(partition)

    def awaited(self, partition: Partition) -> bool:
        """Return whether answers of the other side wait for answers of this partition."""
        other = self._side(partition).other
        return any(self._join.held(other, lane) for lane in self._lanes.get(partition, ()))

    def _side(self, partition: Partition) -> JoinSide:
        return JoinSide.SHADOW if partition[0] == self._settings.shadow_topic else JoinSide.ANSWERED

    def _records(self, records: FetchedRecords, parts: Sequence[PartitionRecords]) -> None:
        values = records.values
        lanes = []
        for part in parts:
            rows = part.rows
            try:
                values = answer_records.in_json(values, rows, self._as_json)
                lanes.append(answer_records.group_by_partition(values, rows))
            except UnreadableAnswer:
                rows = self._readable(values, part)
                values = answer_records.in_json(values, rows, self._as_json)
                lanes.append(answer_records.group_by_partition(values, rows))
            self._read_any |= len(rows) > 0
        first = self._waiting.put(values, records.keys, records.size)
        pairs = list[tuple[Partition, JoinedPairs]]()
        for part, groups in zip(parts, lanes, strict=True):
            side = self._side(part.partition)
            self._lanes.setdefault(part.partition, set()).update(groups)
            pairs += [(lane, self._join.add(side, lane, offsets, rows + first)) for lane, (rows, offsets) in groups.items()]
        self._pairs(pairs)

    def _readable(self, values: Column, part: PartitionRecords) -> NDArray[np.int64]:
        """Return the rows of a partition that are scores, (n,); the others are counted and logged.

        Raises Fatal (2) if there are many others and not one score: the configuration then names a wrong topic or format.
        """
        faults = answer_records.faults(values, part.rows, self._as_json)
        for row, fault in faults.items():
            self._skipped.skip(*part.partition, int(part.offsets[np.searchsorted(part.rows, row)]), fault)
        rows = part.rows[~np.isin(part.rows, np.fromiter(faults, np.int64, len(faults)))]
        if (unreadable := self._skipped.counts.total()) >= MANY_UNREADABLE and not (self._read_any or len(rows)):
            topic, partition = part.partition
            raise Fatal(
                f"{unreadable:,} records of {topic}[{partition}] and others were read, and none is a score", HINT, USAGE
            )
        return rows

    def _readable_pairs(self, of: NDArray[np.intp], lanes: Sequence[Partition], pairs: JoinedPairs) -> NDArray[np.bool_]:
        """Return which pairs have two readable answers, (n,); the others are counted and logged."""
        readable = np.ones(len(pairs.offsets), np.bool_)
        for row in range(len(readable)):
            try:
                self._waiting.answers(pairs.answered[row : row + 1])
                self._waiting.answers(pairs.shadow[row : row + 1])
            except UnreadableAnswer as error:
                readable[row] = False
                topic, partition = lanes[of[row]]
                error_text = f"an answer to {topic}[{partition}]@{pairs.offsets[row]}: {error}"
                self._skipped.skip(topic, partition, int(pairs.offsets[row]), error_text)
        return readable

    def _letters(self, records: FetchedRecords, part: PartitionRecords) -> None:
        for key, headers in zip(some(records.keys, part.rows), records.headers(part.rows), strict=True):
            if (letter := answer_records.read_dead_letter(headers or [])) is not None:
                lane, offset, answer = letter
                ticket = self._waiting.put_one(KeyedAnswer(answer, key))
                self._pairs(
                    [(lane, self._join.add(JoinSide.ANSWERED, lane, np.array([offset]), np.array([ticket]), late=True))]
                )

    def _pairs(self, joined: Sequence[tuple[Partition, JoinedPairs]]) -> None:
        """Count the pairs of several source partitions."""
        joined = [(lane, pairs) for lane, pairs in joined if len(pairs.offsets)]
        if not joined:
            return
        lanes = [lane for lane, _ in joined]
        pairs = concatenate([pairs for _, pairs in joined])
        of = np.repeat(np.arange(len(lanes)), [len(each.offsets) for _, each in joined])
        try:
            answered, shadow = (self._waiting.answers(side) for side in (pairs.answered, pairs.shadow))
        except UnreadableAnswer:
            readable = self._readable_pairs(of, lanes, pairs)
            of = of[readable]
            pairs = JoinedPairs(*(column[readable] for column in pairs))
            answered, shadow = (self._waiting.answers(side) for side in (pairs.answered, pairs.shadow))
        if self._window != ALWAYS:
            inside = [row for row, each in enumerate(shadow) if self._window.contains(each.event_ms)]
            if len(inside) < len(shadow):
                answered, shadow = ([side[row] for row in inside] for side in (answered, shadow))
                of = of[inside]
                pairs = JoinedPairs(*(column[inside] for column in pairs))
        self._count(lanes, of, pairs, self.outputs.answers(answered), self.outputs.answers(shadow))

    def _count(
        self,
        lanes: Sequence[Partition],
        of: NDArray[np.intp],
        pairs: JoinedPairs,
        answered: Sequence[VersionAnswer],
        shadow: Sequence[VersionAnswer],
    ) -> None:
        """Count pairs inside the window; `of` is the index in `lanes` of the source partition of each pair."""
        differences = self._comparer.differences(answered, shadow)
        keys = self._waiting.hashes(pairs.answered)
        places = zip(keys, of.tolist(), pairs.offsets.tolist(), strict=True)
        cells = np.array([cell(key, lanes[at], offset) for key, at, offset in places], np.intp)
        self.tally.add(cells, differences)
        for at, lane in enumerate(lanes):
            rows = np.flatnonzero(of == at)
            self.sample.add(lane, pairs.offsets[rows], differences.part(rows))
            if self.labelled is not None:
                both = rows[differences.where(lambda kind: kind.scored)[rows]].tolist()
                sides = differences.ordered(both, answered, shadow)
                self.labelled.add(
                    lane, [(int(pairs.offsets[n]), int(cells[n]), *side) for n, side in zip(both, sides, strict=True)]
                )
        self.pairs += sum(count for kind, count in differences.counts() if kind is not None)
