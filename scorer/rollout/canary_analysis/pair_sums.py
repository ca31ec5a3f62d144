"""Pair the answers of champion and candidate in the order of reading, and sum the differences of the pairs. Pure.

The sums do not depend on the order in which partitions are read, with one exception: if several partitions have an answer to
the same event, the answer that is read first counts (see `PairSums.scattered`).
"""

import logging
from collections import defaultdict
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from publisher.errors import USAGE, Fatal
from publisher.kafka.partitions import Offsets, Partition
from publisher.kafka.skipped_records import SkippedRecords
from publisher.runtime.time_range import ALWAYS, TimeRange
from scorer.evaluation.decision_output import UNKNOWN, DecidedOutputs
from scorer.fetch.source import FetchedRecords, PartitionRecords
from scorer.native.byte_columns import Column, take_rows
from scorer.rollout.canary_analysis import answer_records
from scorer.rollout.canary_analysis.analysis_report import DROPPED
from scorer.rollout.canary_analysis.answer_records import UnreadableAnswer
from scorer.rollout.canary_analysis.decision_sample import DecisionSample
from scorer.rollout.canary_analysis.join_shadow_answers import JoinedPairs, JoinSide, MergeJoin, concatenate
from scorer.rollout.canary_analysis.key_strata import cell_of
from scorer.rollout.canary_analysis.labelled_pairs import LabelledPairs
from scorer.rollout.canary_analysis.paired_metrics import Contest, PairComparer, PairedSums, VersionAnswer
from scorer.rollout.canary_analysis.pending_answers import KeyedAnswer, PendingAnswers
from scorer.rollout.canary_analysis.rules import ERRORS, FLIPS
from scorer.scores import formats
from scorer.settings import Settings

log = logging.getLogger(__name__)

MAX_WAITING = 60_000  # answers that wait for a partner, of some 500 bytes each
MANY_UNREADABLE = 100  # unreadable records, at which reading ends with an error if no score was read
NO_ANSWERS = {
    JoinSide.ANSWERED: "no answer of a scorer was read",
    JoinSide.SHADOW: "no answer of the shadow was read",
}
NO_COMMON_EVENT = "a scorer and the shadow have not answered the same event"
ONE_FAILED = "in each pair, at least one version failed"
HINT = "check output.topic, output.format and schema_registry.url"


class PairSums:
    """Pairs the scorers' answers with the shadow's answers to the same events, and sums the differences of the pairs.

    After an exception the object must not be used again.

    Attributes:
        paired_sums: The sums of the differences for each rule, by group of keys (see `key_strata.py`).
        sample: The counts of decisions, and a sample of the scores.
        labelled: The pairs that are kept until the labels of their events are read; None if no rule needs labels.
        outputs: The selection of the output that determines a version's decision, for scores with several named outputs.
        slow: The partitions with too many answers that wait for a partner. The caller must pause them.
        pairs: The number of pairs in the sums.
    """

    def __init__(
        self, settings: Settings, contest: Contest, window: TimeRange, outputs: DecidedOutputs, *, labels: bool = False
    ) -> None:
        """Create empty sums.

        Args:
            settings: The settings with the topics and the format of scores.
            contest: The digests of the champion and the candidate.
            window: The time range of the events whose answers are compared.
            outputs: Looks up the named output that determines a version's decision.
            labels: Whether to keep the pairs until labels are read.
        """
        self._settings = settings
        self._window = window
        self._comparer = PairComparer(contest)
        self._as_json = formats.as_json(settings)
        self._join = MergeJoin(MAX_WAITING, 0)
        self._waiting = PendingAnswers()
        self._most_held = 0
        self._source_partitions: dict[Partition, set[Partition]] = {}
        self._answer_partitions = defaultdict[tuple[str, Partition], set[int]](set)
        self._skipped = SkippedRecords(log)
        self._read_any = False
        self._read_sides: set[JoinSide] = set()
        self._ends: dict[JoinSide, Offsets] = {}
        self.outputs = outputs
        self.paired_sums = PairedSums()
        self.sample = DecisionSample()
        self.labelled = LabelledPairs(settings.labels.max_events) if labels else None
        self.slow: set[Partition] = set()
        self.pairs = 0

    def share_room(self, partitions: Collection[Partition]) -> None:
        """Divide MAX_WAITING, the number of answers that may wait, evenly among the score partitions in `partitions`."""
        width = max(1, sum(topic == self._settings.output.topic for topic, _ in partitions))
        self._most_held = MAX_WAITING // (2 * width)
        self._join.late = MAX_WAITING // (4 * width)

    @property
    def dropped(self) -> dict[str, int]:
        """The numbers of excluded answers and pairs, by reason."""
        unreadable = self._skipped.counts.total()
        return {**self._join.dropped._asdict(), "foreign": self.paired_sums.foreign, "unreadable": unreadable}

    @property
    def scattered(self) -> list[Partition]:
        """The source partitions whose answers are spread over several partitions of one topic, sorted."""
        # A scorer writes the answers to a source partition to one partition of a topic, unless the number of partitions
        # changes. Another process may have written a second answer elsewhere. Which of the two is paired depends on the order
        # of reading.
        return sorted({lane for (_, lane), numbers in self._answer_partitions.items() if len(numbers) > 1})

    def missing_reasons(self) -> dict[str, str]:
        """Return why the rules on errors and decision flips have no pairs, by rule name. Rules with pairs are left out."""
        # A verification of a logged decision compares these reasons. They therefore depend on the records only, not on how fast
        # the topics are read, and contain no counts.
        cells = self.paired_sums.cells
        if cells[ERRORS].pairs:
            return {} if cells[FLIPS].pairs else {FLIPS: ONE_FAILED}
        lines = [NO_ANSWERS[side] for side in JoinSide if side not in self._read_sides]
        if self.paired_sums.foreign:
            lines.append(f"only {DROPPED['foreign']}")
        elif not lines:
            lines.append(NO_COMMON_EVENT if self._window == ALWAYS else f"{NO_COMMON_EVENT} in the time range")
        if self._skipped.counts.total():
            lines.append(f"there are {DROPPED['unreadable']}")
        return dict.fromkeys((ERRORS, FLIPS), "; ".join(lines))

    @property
    def unknown(self) -> str:
        """A message that names the versions whose scores are not compared; "" if there are none.

        For these versions it is unknown which of their outputs determines the decision.
        """
        return f"of {', '.join(sorted(self.outputs.unknown))} {UNKNOWN}" if self.outputs.unknown else ""

    def add_records(self, records: FetchedRecords) -> None:
        """Add the answers in fetched records. The caller must add the records of each partition in the order of their offsets.

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

    def drop_unmatched(self, reached: Offsets, ends: Offsets) -> None:
        """Drop the answers that can no longer get a partner (an answer to the same event).

        Call this method periodically, after `add_records`.

        Args:
            reached: The offset after the last record that was added, by partition.
            ends: The current log ends, including records of open transactions, by partition.
        """
        # A scorer's answer waits for a shadow answer, and the reverse. It is dropped when records of the awaited kind were read
        # past the event, and then all records of this kind that existed at that time were read: dead letters and failures of
        # the shadow may follow the scores of later events. The pairs therefore do not depend on how fast the topics are read.
        for side in JoinSide:
            noted = self._ends.get(side, {})
            if all(reached.get(at, 0) >= end for at, end in noted.items() if at not in self.slow):
                self._join.drop_unmatched(side)
                self._ends[side] = {at: end for at, end in ends.items() if self._side(at) is side}

    def release_answers(self) -> None:
        """Free the memory of answers that no longer wait for a partner, and update `slow`.

        Call this method after each call of `add_records`.
        """
        self._waiting.keep(self._join.waiting_tickets())
        for partition, lanes in self._source_partitions.items():
            held = max((self._join.count_waiting(self._side(partition), lane) for lane in lanes), default=0)
            if held > self._most_held:
                self.slow.add(partition)
            elif held <= self._most_held // 2:
                self.slow.discard(partition)

    def is_needed(self, partition: Partition) -> bool:
        """Return whether answers wait for partners (answers to the same events) from this partition."""
        other = self._side(partition).other
        return any(self._join.count_waiting(other, lane) for lane in self._source_partitions.get(partition, ()))

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
            if len(rows):
                self._read_any = True
                self._read_sides.add(self._side(part.partition))
        first = self._waiting.add_block(values, records.keys, records.size)
        pairs = list[tuple[Partition, JoinedPairs]]()
        for part, groups in zip(parts, lanes, strict=True):
            side = self._side(part.partition)
            self._source_partitions.setdefault(part.partition, set()).update(groups)
            topic, number = part.partition
            for lane in groups:
                self._answer_partitions[topic, lane].add(number)
            pairs += [(lane, self._join.add(side, lane, offsets, rows + first)) for lane, (rows, offsets) in groups.items()]
        self._pairs(pairs)

    def _readable(self, values: Column, part: PartitionRecords) -> NDArray[np.int64]:
        """Return the indices of the readable score records of a partition, (n,). Count and log the other records.

        Raises Fatal with code 2 if many records were unreadable and none was a score.
        """
        # The cause is a wrong topic or format in the configuration.
        faults = answer_records.faults(values, part.rows, self._as_json)
        for row, fault in faults.items():
            self._skipped.skip(*part.partition, int(part.offsets[np.searchsorted(part.rows, row)]), fault)
        rows = part.rows[~np.isin(part.rows, np.fromiter(faults, np.int64, len(faults)))]
        if (unreadable := self._skipped.counts.total()) >= MANY_UNREADABLE and not (self._read_any or len(rows)):
            topic, partition = part.partition
            raise Fatal(f"none of {unreadable:,} records is a score; the last one is in {topic}[{partition}]", HINT, USAGE)
        return rows

    def _readable_pairs(self, of: NDArray[np.intp], lanes: Sequence[Partition], pairs: JoinedPairs) -> NDArray[np.bool_]:
        """Return for each pair whether both of its answers are readable, (n,). Count and log unreadable answers.

        Args:
            of: For each pair, the index of its source partition in `lanes`, (n,).
            lanes: The source partitions of the pairs.
            pairs: The pairs.
        """
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
        for key, headers in zip(take_rows(records.keys, part.rows), records.headers(part.rows), strict=True):
            if (letter := answer_records.read_dead_letter(headers or [])) is not None:
                lane, offset, answer = letter
                self._read_sides.add(JoinSide.ANSWERED)
                topic, number = part.partition
                self._answer_partitions[topic, lane].add(number)
                ticket = self._waiting.add(KeyedAnswer(answer, key))
                self._pairs(
                    [(lane, self._join.add(JoinSide.ANSWERED, lane, np.array([offset]), np.array([ticket]), late=True))]
                )

    def _pairs(self, joined: Sequence[tuple[Partition, JoinedPairs]]) -> None:
        """Decode the answers of new pairs, and add the pairs inside the time range to all sums."""
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
        """Add pairs to all sums.

        Args:
            lanes: The source partitions of the pairs.
            of: For each pair, the index of its source partition in `lanes`, (n,).
            pairs: The pairs.
            answered: The scorers' answer of each pair.
            shadow: The shadow's answer of each pair.
        """
        differences = self._comparer.differences(answered, shadow)
        keys = self._waiting.hashes(pairs.answered)
        places = zip(keys, of.tolist(), pairs.offsets.tolist(), strict=True)
        cells = np.array([cell_of(key, lanes[at], offset) for key, at, offset in places], np.intp)
        self.paired_sums.add(cells, differences)
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
