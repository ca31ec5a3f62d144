"""The count that decides: was every event answered once, in order, and by no older version than the event before it?

Pure: no I/O, no Kafka. Batches of offsets go in, an `EventReport` comes out. Everything is counted by source coordinates
(topic, partition, offset), since producers may repeat business ids. Memory: at most three bits an event (read, answered, and
scored by which digest), at most 96 MiB for ids, and nothing for answers outside the window.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from publisher.audit.assignment import CHAMPION, Answered, Assignment, Shares
from publisher.audit.duplicate_ids import Hashes, RepeatedIds
from publisher.audit.offset_set import Bitmap, Offsets
from publisher.audit.report import EXAMPLES, Report
from publisher.audit.version_order import Swap, regressions
from publisher.kafka.partitions import Partition


class Kind(IntEnum):
    """What an event became."""

    SCORED = 0
    EXPIRED = 1
    DEAD = 2
    FALLBACK = 3


@dataclass(frozen=True)
class Window:
    """The offsets [lo, hi) of one input partition that are audited.

    `end`: the first offset that did not exist when the answers were read; an answer to it is a phantom. Default: `hi`.
    `due`: up to here the scorers had committed before that; unanswered events behind are pending, not missing. Default: `hi`.
    """

    lo: int
    hi: int
    end: int | None = None
    due: int | None = None


@dataclass(frozen=True)
class Answers:
    """A batch out of one output partition, in its order: what became of events of one input partition.

    `offsets`, `kinds` (values of Kind) and, where given, `ids` (64-bit hashes) are (n,); `digests` are the models' of the
    whole batch, or one an event. Dead letters have no digest: give "".
    """

    output: Partition
    source: Partition
    offsets: Offsets
    kinds: NDArray[np.uint8]
    digests: str | list[str]
    ids: Hashes | None = None


@dataclass
class EventReport(Report):
    """Counts of events and of their answers. It always holds: scored + expired + fallback + dead_lettered = events -
    missing - pending + duplicates + phantoms - those phantoms that lie beyond the end of their partition or in no audited one.
    """

    events: int = 0
    """Events in the inputs, or in the window of `--from` and `--to`."""
    scored: int = 0
    """Answers that are scores."""
    expired: int = 0
    """Answers that are `expired`: the event's deadline had passed."""
    fallback: int = 0
    """Answers of the status `fallback`: the constant of `model.fallback`, because no model server was there. What the champion
    answered in a canary's place is `scored`."""
    dead_lettered: int = 0
    """Answers that are dead letters. A letter for a batch that cannot be read answers each of its offsets."""
    missing: int = 0
    """Events without an answer, although the group has committed them (without a group: any)."""
    duplicates: int = 0
    """Second and further answers to one event."""
    phantoms: int = 0
    """Answers to events that are not in the inputs."""
    out_of_order: int = 0
    """Scores that stand after the score of a later event of the same input partition."""
    version_regressions: int = 0
    """Events scored by an older version than one that had taken over their partition before them."""
    misassigned: int = 0
    """Scores of another arm than the event's key belongs to; or whose `role` is neither that arm nor the champion."""
    uncommitted: int = 0
    """Answers that can be read while the group has not committed their events."""
    unreadable: int = 0
    """Records in the output, dead-letter or swap topics that do not say what they are about."""
    pending: int = 0
    """Events without an answer that the group has not committed: they are still to come."""
    repeated_ids: int = 0
    """Answered events whose id an earlier one had; producers may repeat ids."""
    ids_sampled: int = 1
    """1: `repeated_ids` is exact; k: it is an estimate from one id in k."""
    gone: int = 0
    """Answers to events that were deleted with their topic; no other count has them."""


class _Ledger:
    def __init__(self, source: Partition, window: Window) -> None:
        self.assignment = Assignment(source)
        self.split = False
        self.window = window
        self.end = window.hi if window.end is None else window.end
        self.inputs = Bitmap()
        self.answered = Bitmap()
        self.scored: dict[str, Bitmap] = {}
        self.swaps: list[Swap] = []
        self.committed: int | None = None


class Audit:
    """Takes what was read, in any mixture of calls; only the batches of one output partition must come in their order."""

    def __init__(self, windows: Mapping[Partition, Window]) -> None:
        """`windows` names every input partition."""
        self._ledgers = {partition: _Ledger(partition, window) for partition, window in windows.items()}
        self._report = EventReport()
        self._kinds = np.zeros(len(Kind), np.int64)
        self._highest: dict[tuple[Partition, Partition], int] = {}
        self._ids = RepeatedIds()

    def inputs(self, partition: Partition, offsets: Offsets) -> None:
        """(n,) offsets read from an input partition (transactions leave gaps). Raises KeyError for one without a window."""
        ledger = self._ledgers[partition]
        ledger.inputs.add(offsets[(offsets >= ledger.window.lo) & (offsets < ledger.window.hi)])

    def swap(self, partition: Partition, swap: Swap, percent: int = 0, seed: int = 0) -> None:
        """A swap record, with the canary's share in percent and the seed of its hash; one for a partition without a window is
        of no concern."""
        if partition in self._ledgers:
            ledger = self._ledgers[partition]
            ledger.swaps.append(swap)
            ledger.assignment.add(Shares(swap.offset, swap.revision, percent, seed))
            ledger.split = ledger.split or percent > 0

    def assigned(self, source: Partition, answers: Sequence[Answered]) -> None:
        """Scores of one input partition, as they say whose the event was. All swap records come before."""
        ledger = self._ledgers.get(source)
        if ledger is None or not (ledger.split or any(one.arm != CHAMPION or one.role != CHAMPION for one in answers)):
            return
        inside = [one for one in answers if ledger.window.lo <= one.offset < ledger.window.hi]
        wrong = ledger.assignment.misassigned(inside)
        self._found("misassigned", len(wrong), source, wrong)

    def committed(self, partition: Partition, offset: int) -> None:
        """Up to where the scorers had committed after the answers were read; answers from there on are uncommitted. Raises
        KeyError for a partition without a window. Without this call nothing is uncommitted."""
        self._ledgers[partition].committed = offset

    def unreadable(self, partition: Partition, offset: int) -> None:
        """A record of an output, dead letter or swap topic that does not say what it answers."""
        self._found("unreadable", 1, partition, [offset])

    def gone(self, count: int) -> None:
        """So many answers are to events that were deleted with their topic."""
        self._report.gone += count

    def answers(self, answers: Answers) -> None:
        """A batch of scores, expired answers or dead letters. Those outside the window are passed over."""
        ledger = self._ledgers.get(answers.source)
        if ledger is None:
            self._found("phantoms", len(answers.offsets), answers.source, answers.offsets)
            return
        beyond = answers.offsets >= ledger.end
        self._found("phantoms", int(beyond.sum()), answers.source, answers.offsets[beyond])
        inside = (answers.offsets >= ledger.window.lo) & (answers.offsets < ledger.window.hi) & ~beyond
        if not inside.any():
            return
        self._order(answers, inside)
        self._versions(ledger, answers, inside)
        offsets = answers.offsets[inside]
        fresh = ledger.answered.add(offsets)
        self._found("duplicates", int((~fresh).sum()), answers.source, offsets[~fresh])
        self._kinds += np.bincount(answers.kinds[inside], minlength=len(Kind))
        if answers.ids is not None:
            self._ids.add(answers.ids[inside][fresh])

    def unread_inputs(self, partition: Partition, start: int, stop: int) -> None:
        """Count all of [start, stop) as events: a batch that cannot be read. Raises KeyError as `inputs` does."""
        window = self._ledgers[partition].window
        start, stop = max(start, window.lo), min(stop, window.hi)
        if start < stop:
            self._ledgers[partition].inputs.add_range(start, stop)

    def dead_range(self, source: Partition, start: int, stop: int) -> None:
        """Count one dead letter that stands for all of [start, stop), which are events whether or not they can be read."""
        ledger = self._ledgers.get(source)
        end = 0 if ledger is None else ledger.end
        beyond = range(max(start, end), stop)
        self._found("phantoms", max(0, stop - beyond.start), source, beyond)
        if ledger is None:
            return
        self.unread_inputs(source, start, stop)
        start, stop = max(start, ledger.window.lo), min(stop, ledger.window.hi, end)
        if start < stop:
            again = ledger.answered.count(start, stop)
            self._found("duplicates", again, source, ledger.answered.first(EXAMPLES, start, stop))
            ledger.answered.add_range(start, stop)
            self._kinds[Kind.DEAD] += stop - start

    def report(self) -> EventReport:
        report = deepcopy(self._report)
        for partition, ledger in sorted(self._ledgers.items()):
            report.events += ledger.inputs.count()
            unanswered = ledger.inputs.minus(ledger.answered)
            due = ledger.window.hi if ledger.window.due is None else ledger.window.due
            report.pending += unanswered.count(due)
            for fault, (count, offsets) in _findings(ledger, unanswered, due).items():
                report.note(fault, count, _name(partition), offsets)
        report.scored, report.expired, report.dead_lettered, report.fallback = (int(self._kinds[kind]) for kind in Kind)
        report.repeated_ids, report.ids_sampled = self._ids.count(), self._ids.sampled
        return report

    def _order(self, answers: Answers, inside: NDArray[np.bool_]) -> None:
        """Scores of one input partition must rise within an output partition; per-key order follows, a key keeps its one. Dead
        letters are left out: they have a topic of their own."""
        offsets = answers.offsets[inside & (answers.kinds != Kind.DEAD)]
        if not len(offsets):
            return
        lane = (answers.output, answers.source)
        highest = np.maximum.accumulate(np.concatenate([[self._highest.get(lane, -1)], offsets]))
        late = offsets < highest[:-1]
        self._found("out_of_order", int(late.sum()), answers.source, offsets[late])
        self._highest[lane] = int(highest[-1])

    def _versions(self, ledger: _Ledger, answers: Answers, inside: NDArray[np.bool_]) -> None:
        scored = inside & (answers.kinds == Kind.SCORED)
        if isinstance(answers.digests, str):
            ledger.scored.setdefault(answers.digests, Bitmap()).add(answers.offsets[scored])
            return
        digests = np.array(answers.digests, np.object_)
        for digest in set(answers.digests):
            ledger.scored.setdefault(digest, Bitmap()).add(answers.offsets[scored & (digests == digest)])

    def _found(self, fault: str, count: int, partition: Partition, offsets: Offsets | Sequence[int]) -> None:
        self._report.note(fault, count, _name(partition), offsets)


def _name(partition: Partition) -> str:
    return f"{partition[0]}/{partition[1]}"


def _findings(ledger: _Ledger, unanswered: Bitmap, due: int) -> dict[str, tuple[int, list[int]]]:
    """The faults that show only when everything has been read: fault -> (count, first offsets)."""
    phantoms = ledger.answered.minus(ledger.inputs)
    found = {
        "missing": (unanswered.count(0, due), unanswered.first(EXAMPLES, 0, due)),
        "phantoms": (phantoms.count(), phantoms.first(EXAMPLES)),
        "version_regressions": regressions(ledger.scored, ledger.swaps, EXAMPLES),
    }
    if ledger.committed is not None:
        behind = ledger.committed
        found["uncommitted"] = (ledger.answered.count(behind), ledger.answered.first(EXAMPLES, behind))
    return found
