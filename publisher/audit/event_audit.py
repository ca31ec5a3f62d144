"""The audit of events: was every event answered once and in order, and did no older version score events after a newer one?

Pure: no I/O, no Kafka. Batches of offsets go in, an `EventReport` comes out. Events are identified by topic, partition and
offset, because producers may repeat business ids.
"""

# Memory: an event takes one bit in each set of offsets that contains the event, at most four bits. The sets are the read
# events, the copies, the answered events, and the events that each model digest has scored. Ids take at most 96 MiB. Answers to
# events outside the audited offsets take no memory.

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from publisher.audit.canary_assignment import CHAMPION, Answered, Assignment, Shares
from publisher.audit.duplicate_ids import Hashes, RepeatedIds
from publisher.audit.offset_set import Bitmap, Offsets
from publisher.audit.report import EXAMPLES, Report
from publisher.audit.version_order import VersionCutover, regressions
from publisher.kafka.partitions import Partition


class Kind(IntEnum):
    """The kind of an answer: a score, a notice that the event expired, a dead letter, or the constant `model.fallback`."""

    SCORED = 0
    EXPIRED = 1
    DEAD = 2
    FALLBACK = 3


@dataclass(frozen=True)
class Window:
    """The audited offsets [lo, hi) of one input partition.

    Attributes:
        lo: the first audited offset.
        hi: the offset after the last audited one.
        end: the end offset of the partition, requested before the answers were read; None means `hi`. An answer to this or a
            later offset is a phantom: its event does not exist.
        due: the offset that the consumer group had committed before the answers were read; None means `hi`. All earlier events
            must have an answer. Later events may still be pending.
    """

    lo: int
    hi: int
    end: int | None = None
    due: int | None = None


@dataclass(frozen=True)
class AuditedAnswers:
    """Answers (scores or dead letters) to events of one input partition, from one output partition in offset order.

    Attributes:
        output: the output partition.
        source: the input partition.
        offsets: (n,) input offsets of the answered events.
        kinds: (n,) values of Kind.
        digests: the digest of the model version: one for all answers, or a sequence with one per answer; "" for dead letters.
        ids: (n,) 64-bit hashes of the event ids; None if the answers have no ids.
    """

    output: Partition
    source: Partition
    offsets: Offsets
    kinds: NDArray[np.uint8]
    digests: str | list[str]
    ids: Hashes | None = None


@dataclass
class EventReport(Report):
    """Counts of events and of their answers (scores and dead letters). The group is the scorers' consumer group."""

    # Invariant: scored + expired + fallback + dead_lettered = events - missing - pending + duplicates + phantoms. Two kinds of
    # phantoms must be left out of this sum: answers to offsets at or after the end of an input partition, and answers to input
    # partitions that are not audited.

    events: int = 0
    """Events in the inputs, or in the window of `--from` and `--to`."""
    scored: int = 0
    """Answers that are scores."""
    expired: int = 0
    """Answers that are `expired`: the event's deadline had passed."""
    fallback: int = 0
    """Answers of the status `fallback`: the constant of `model.fallback`, because no model server was available. Answers of the
    champion for a canary are `scored`."""
    dead_lettered: int = 0
    """Answers that are dead letters. A dead letter for an unreadable batch answers each of its offsets."""
    missing: int = 0
    """Events without an answer, although the group has committed them. If no group is given, all events without an answer."""
    duplicates: int = 0
    """Second and further answers to one event."""
    phantoms: int = 0
    """Answers to events that are not in the inputs."""
    out_of_order: int = 0
    """Scores that come after the score of a later event of the same input partition."""
    version_regressions: int = 0
    """Events scored by an older version although a newer version had taken over their partition at an earlier offset. Only
    revisions of one history of the registry channel are compared; a recreated channel has another history."""
    misassigned: int = 0
    """Scores whose `arm` (champion or canary) is not the arm of the event's key, or whose `role` is neither this arm nor
    champion."""
    uncommitted: int = 0
    """Answers that are visible although the group has not committed their events."""
    unreadable: int = 0
    """Records in the output, dead-letter or swap topics that cannot be decoded."""
    pending: int = 0
    """Events without an answer that the group has not committed yet; their answers are still to come."""
    repeated_ids: int = 0
    """Answered events with the id of an earlier answered event. This is no fault, because producers may repeat ids."""
    ids_sampled: int = 1
    """1 if `repeated_ids` is exact. A larger number k if `repeated_ids` is an estimate from one in k ids."""
    gone: int = 0
    """Answers to events that were deleted with their topic; no other count includes these answers."""
    copies: int = 0
    """Events that a relay has copied from another region; part of `events`."""
    missing_copies: int = 0
    """Missing events that are copies from another region, which may have answered them; part of `missing`."""

    def notes(self) -> list[str]:
        if not self.missing_copies:
            return []
        return [
            f"{self.missing_copies:,} of the missing events are copies from another region, which may have answered them: when "
            "that region is reachable, audit both regions together (scorer audit CONFIG CONFIG)"
        ]


class _Ledger:
    def __init__(self, source: Partition, window: Window) -> None:
        self.assignment = Assignment(source)
        self.split = False
        self.window = window
        self.end = window.hi if window.end is None else window.end
        self.inputs = Bitmap()
        self.copies = Bitmap()
        self.answered = Bitmap()
        self.scored: dict[str, Bitmap] = {}
        self.swaps: list[VersionCutover] = []
        self.committed: int | None = None


class Audit:
    """Counts the events and answers that were read, and their faults.

    Call `add_cutover` before `check_assigned_arms`, and add the batches of one output partition in offset order. Otherwise
    the methods may be called in any order.
    """

    def __init__(self, windows: Mapping[Partition, Window]) -> None:
        """Create an audit of the input partitions in `windows`."""
        self._ledgers = {partition: _Ledger(partition, window) for partition, window in windows.items()}
        self._report = EventReport()
        self._kinds = np.zeros(len(Kind), np.int64)
        self._highest: dict[tuple[Partition, Partition], int] = {}
        self._ids = RepeatedIds()

    def add_inputs(self, partition: Partition, offsets: Offsets) -> None:
        """Add the (n,) offsets of the events of an input partition. The offsets may have gaps, which transactions leave.

        Raises:
            KeyError: if the partition has no window.
        """
        ledger = self._ledgers[partition]
        ledger.inputs.add(offsets[(offsets >= ledger.window.lo) & (offsets < ledger.window.hi)])

    def add_copies(self, partition: Partition, offsets: Offsets) -> None:
        """Mark events of an input partition as copies from another region. They must also be added with `add_inputs`.

        Args:
            partition: the input partition.
            offsets: the (n,) offsets of the copies.

        Raises:
            KeyError: if the partition has no window.
        """
        ledger = self._ledgers[partition]
        ledger.copies.add(offsets[(offsets >= ledger.window.lo) & (offsets < ledger.window.hi)])

    def add_cutover(self, partition: Partition, swap: VersionCutover, percent: int = 0, seed: int = 0) -> None:
        """Add a change of the model version in a partition, and the traffic split that begins there.

        A partition without a window is ignored.

        Args:
            partition: the input partition.
            swap: the change of the version.
            percent: the canary's share of the keys in percent.
            seed: the seed of the hash of keys.
        """
        if partition in self._ledgers:
            ledger = self._ledgers[partition]
            ledger.swaps.append(swap)
            ledger.assignment.add(Shares(swap.offset, swap.revision, percent, seed))
            ledger.split = ledger.split or percent > 0

    def check_assigned_arms(self, source: Partition, answers: Sequence[Answered]) -> None:
        """Check that the events of one input partition were scored in the role of their keys, champion or canary.

        All swap records must have been added before.
        """
        ledger = self._ledgers.get(source)
        if ledger is None or not (ledger.split or any(answer.arm != CHAMPION or answer.role != CHAMPION for answer in answers)):
            return
        inside = [answer for answer in answers if ledger.window.lo <= answer.offset < ledger.window.hi]
        misassigned = ledger.assignment.misassigned(inside)
        self._count_fault("misassigned", len(misassigned), source, misassigned)

    def set_committed(self, partition: Partition, offset: int) -> None:
        """Set the offset that the consumer group has committed in an input partition.

        Request the offset after the answers were read. Answers at or after this offset count as uncommitted. Without this call,
        no answer counts as uncommitted.

        Raises:
            KeyError: if the partition has no window.
        """
        self._ledgers[partition].committed = offset

    def count_unreadable(self, partition: Partition, offset: int) -> None:
        """Count an unreadable record of an output, dead-letter or swap topic."""
        self._count_fault("unreadable", 1, partition, [offset])

    def count_deleted(self, count: int) -> None:
        """Count answers to events that were deleted with their topic."""
        self._report.gone += count

    def add_answers(self, answers: AuditedAnswers) -> None:
        """Count the answers of a batch and the faults among them.

        An answer is a phantom if its input partition is not audited, or if its offset is at or after the end of the partition
        (see `Window.end`). All other answers to offsets that are not audited are ignored.
        """
        ledger = self._ledgers.get(answers.source)
        if ledger is None:
            self._count_fault("phantoms", len(answers.offsets), answers.source, answers.offsets)
            return
        beyond = answers.offsets >= ledger.end
        self._count_fault("phantoms", int(beyond.sum()), answers.source, answers.offsets[beyond])
        inside = (answers.offsets >= ledger.window.lo) & (answers.offsets < ledger.window.hi) & ~beyond
        if not inside.any():
            return
        self._order(answers, inside)
        self._versions(ledger, answers, inside)
        offsets = answers.offsets[inside]
        fresh = ledger.answered.add(offsets)
        self._count_fault("duplicates", int((~fresh).sum()), answers.source, offsets[~fresh])
        self._kinds += np.bincount(answers.kinds[inside], minlength=len(Kind))
        if answers.ids is not None:
            self._ids.add(answers.ids[inside][fresh])

    def add_unreadable_inputs(self, partition: Partition, start: int, stop: int) -> None:
        """Add the offsets [start, stop) of an unreadable batch. Each offset counts as an event.

        Raises:
            KeyError: if the partition has no window.
        """
        window = self._ledgers[partition].window
        start = max(start, window.lo)
        stop = min(stop, window.hi)
        if start < stop:
            self._ledgers[partition].inputs.add_range(start, stop)

    def add_dead_range(self, source: Partition, start: int, stop: int) -> None:
        """Add the dead letter of an unreadable batch, which answers every offset in [start, stop).

        Each of these offsets counts as an event, even if the audit has not read the batch.
        """
        ledger = self._ledgers.get(source)
        end = 0 if ledger is None else ledger.end
        beyond = range(max(start, end), stop)
        self._count_fault("phantoms", max(0, stop - beyond.start), source, beyond)
        if ledger is None:
            return
        self.add_unreadable_inputs(source, start, stop)
        start = max(start, ledger.window.lo)
        stop = min(stop, ledger.window.hi, end)
        if start < stop:
            repeated = ledger.answered.count(start, stop)
            self._count_fault("duplicates", repeated, source, ledger.answered.first(EXAMPLES, start, stop))
            ledger.answered.add_range(start, stop)
            self._kinds[Kind.DEAD] += stop - start

    def report(self) -> EventReport:
        report = deepcopy(self._report)
        for partition, ledger in sorted(self._ledgers.items()):
            report.events += ledger.inputs.count()
            unanswered = ledger.inputs.minus(ledger.answered)
            due_offset = ledger.window.hi if ledger.window.due is None else ledger.window.due
            report.pending += unanswered.count(due_offset)
            report.copies += ledger.copies.count()
            missing_copies = ledger.copies.minus(ledger.answered)
            report.missing_copies += missing_copies.count(0, due_offset)
            for fault, (count, offsets) in _findings(ledger, unanswered, due_offset).items():
                report.note(fault, count, _name(partition), offsets)
        report.scored, report.expired, report.dead_lettered, report.fallback = (int(self._kinds[kind]) for kind in Kind)
        report.repeated_ids = self._ids.count()
        report.ids_sampled = self._ids.sampled
        return report

    def _order(self, answers: AuditedAnswers, inside: NDArray[np.bool_]) -> None:
        """Check that the answers in an output partition have rising input offsets. `inside` selects the answers to check."""
        # This implies the order per key. Dead letters are excluded, because they are in another topic.
        offsets = answers.offsets[inside & (answers.kinds != Kind.DEAD)]
        if not len(offsets):
            return
        lane = (answers.output, answers.source)
        highest = np.maximum.accumulate(np.concatenate([[self._highest.get(lane, -1)], offsets]))
        late = offsets < highest[:-1]
        self._count_fault("out_of_order", int(late.sum()), answers.source, offsets[late])
        self._highest[lane] = int(highest[-1])

    def _versions(self, ledger: _Ledger, answers: AuditedAnswers, inside: NDArray[np.bool_]) -> None:
        scored = inside & (answers.kinds == Kind.SCORED)
        if isinstance(answers.digests, str):
            ledger.scored.setdefault(answers.digests, Bitmap()).add(answers.offsets[scored])
            return
        digests = np.array(answers.digests, np.object_)
        for digest in set(answers.digests):
            ledger.scored.setdefault(digest, Bitmap()).add(answers.offsets[scored & (digests == digest)])

    def _count_fault(self, fault: str, count: int, partition: Partition, offsets: Offsets | Sequence[int]) -> None:
        self._report.note(fault, count, _name(partition), offsets)


def _name(partition: Partition) -> str:
    return f"{partition[0]}/{partition[1]}"


def _findings(ledger: _Ledger, unanswered: Bitmap, due_offset: int) -> dict[str, tuple[int, list[int]]]:
    """Return the faults that can be found only after all records were added.

    The result has the count and the first offsets of each fault, by the name of the fault.

    Args:
        ledger: the offsets that were added for one input partition.
        unanswered: the offsets of the partition's events without an answer.
        due_offset: the offset before which every event must have an answer.
    """
    phantoms = ledger.answered.minus(ledger.inputs)
    faults = {
        "missing": (unanswered.count(0, due_offset), unanswered.first(EXAMPLES, 0, due_offset)),
        "phantoms": (phantoms.count(), phantoms.first(EXAMPLES)),
        "version_regressions": regressions(ledger.scored, ledger.swaps, EXAMPLES),
    }
    if ledger.committed is not None:
        behind = ledger.committed
        faults["uncommitted"] = (ledger.answered.count(behind), ledger.answered.first(EXAMPLES, behind))
    return faults
