"""The audit over regions: was every event answered in at least one region, and which events were answered twice? Pure.

An event and its copies in other regions count as one event. After a failover, an event may have answers in two regions
(`rescored`), with the same id. Two answers in one region are a fault.
"""

# An event is identified by the position where it was first written. Memory: 24 bytes per copy, 16 bytes per answer, and a few
# bits per event.

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from publisher.audit.offset_set import Bitmap
from publisher.audit.report import EXAMPLES, Report
from publisher.kafka.partitions import Partition
from publisher.kafka.source_position import Position

Integers = NDArray[np.int64]


class OriginPartition(NamedTuple):
    """The partition in which events were first written."""

    region: str
    topic: str
    partition: int

    def __str__(self) -> str:
        return str(Position(*self, 0)).removesuffix("/0")


@dataclass
class RegionsReport(Report):
    """Counts of events. An event and its copies in other regions count as one event, at its original position."""

    title: ClassVar[str] = "audit over regions"
    positions: ClassVar[str] = "region/topic/partition/offset"

    events: int = 0
    """Events of all regions. An event and its copies count once."""
    answered: int = 0
    """Events with a score or a dead letter in any region."""
    missing: int = 0
    """Events without an answer, although the group of at least one region has committed them."""
    duplicates: int = 0
    """Second and further answers to one event in the same region."""
    different_ids: int = 0
    """Events whose answers have different ids, so that consumers cannot detect the repeated answer."""
    phantoms: int = 0
    """Answers to events that are not in the inputs."""
    unreadable: int = 0
    """Records in any of the topics that cannot be decoded."""
    pending: int = 0
    """Events without an answer that no group has committed yet; their answers are still to come."""
    pending_uncopied: int = 0
    """Pending events without a copy in another region: a relay has not copied them yet; part of `pending`."""
    rescored: int = 0
    """Answers to events that another region has answered too, as happens after a failover."""
    gone: int = 0
    """Answers to events that were deleted with their topic; no other count includes these answers."""
    by_region: dict[str, int] = field(default_factory=dict)
    """The number of events that each region has answered."""

    def notes(self) -> list[str]:
        if not self.pending_uncopied:
            return []
        return [
            f"{self.pending_uncopied:,} of the pending events have no copy in another region: the relay has not copied them yet"
        ]

    def rows(self) -> dict[str, int]:
        return super().rows() | {f"answered in {region}": count for region, count in sorted(self.by_region.items())}


class _Copies(NamedTuple):
    """Copies in one partition of events that were first written in `origin_partition`.

    Attributes:
        origin_partition: the partition in which the events were first written.
        offsets: (n,) the offsets of the copies, ascending.
        origins: (n,) the offset of each copy's original in `origin_partition`.
    """

    origin_partition: OriginPartition
    offsets: Integers
    origins: Integers


class RegionsAudit:
    """Counts the events of all regions and the answers to them. Add the events of all regions before the first answer."""

    def __init__(self) -> None:
        self._inputs: defaultdict[OriginPartition, Bitmap] = defaultdict(Bitmap)
        self._due: defaultdict[OriginPartition, Bitmap] = defaultdict(Bitmap)
        self._copied: defaultdict[OriginPartition, Bitmap] = defaultdict(Bitmap)
        self._answered: defaultdict[tuple[str, OriginPartition], Bitmap] = defaultdict(Bitmap)
        self._ids: defaultdict[OriginPartition, list[tuple[Integers, Integers]]] = defaultdict(list)
        self._copies: dict[tuple[str, Partition], list[_Copies]] = {}
        self._report = RegionsReport()

    def add_inputs(
        self,
        region: str,
        partition: Partition,
        written_here: Integers,
        copies: Mapping[OriginPartition, tuple[Integers, Integers]],
        due_offset: int,
    ) -> None:
        """Add the events of one input partition of a region.

        Args:
            region: the region.
            partition: the input partition.
            written_here: (n,) the offsets of events that were first written in this partition.
            copies: the events in `partition` that are copies. For each origin partition: the (m,) offsets of the copies in
                `partition`, and the (m,) offsets of the originals.
            due_offset: the offset that the group of this region has committed in the partition.
        """
        home = OriginPartition(region, *partition)
        self._inputs[home].add(written_here)
        self._due[home].add(written_here[written_here < due_offset])
        copied_homes = [_Copies(origin, *columns) for origin, columns in copies.items()]
        for copied in copied_homes:
            self._inputs[copied.origin_partition].add(copied.origins)
            self._copied[copied.origin_partition].add(copied.origins)
            self._due[copied.origin_partition].add(copied.origins[copied.offsets < due_offset])
        self._copies[region, partition] = copied_homes

    def add_answers(self, region: str, partition: Partition, offsets: Integers, ids: Integers | None) -> None:
        """Add answers of a region to events of one of its input partitions.

        Args:
            region: the region.
            partition: the input partition in this region.
            offsets: the (n,) offsets of the answered events in this partition.
            ids: the (n,) 64-bit hashes of the ids of the answers; None if the answers have no ids.
        """
        homes_here = self._copies.get((region, partition))
        if homes_here is None:
            self._report.note("phantoms", len(offsets), str(OriginPartition(region, *partition)), offsets)
            return
        unmatched = np.ones(len(offsets), np.bool_)
        for copied in homes_here:
            at = np.minimum(np.searchsorted(copied.offsets, offsets), len(copied.offsets) - 1)
            is_copy = copied.offsets[at] == offsets
            self._add_answers(
                region, copied.origin_partition, copied.origins[at[is_copy]], None if ids is None else ids[is_copy]
            )
            unmatched &= ~is_copy
        self._add_answers(
            region, OriginPartition(region, *partition), offsets[unmatched], None if ids is None else ids[unmatched]
        )

    def count_unreadable(self, region: str, partition: Partition, offset: int) -> None:
        """Count a record that cannot be decoded."""
        self._report.note("unreadable", 1, str(OriginPartition(region, *partition)), [offset])

    def count_deleted(self, count: int) -> None:
        """Count answers to events that were deleted with their topic."""
        self._report.gone += count

    def report(self) -> RegionsReport:
        """Return the report. This method may be called only once."""
        report = self._report
        for home in sorted({*self._inputs, *(home for _, home in self._answered)}):
            self._count_partition(report, home)
        return report

    def _add_answers(self, region: str, home: OriginPartition, offsets: Integers, ids: Integers | None) -> None:
        if not len(offsets):
            return
        fresh = self._answered[region, home].add(offsets)
        self._report.note("duplicates", int((~fresh).sum()), str(home), offsets[~fresh])
        if ids is not None:
            self._ids[home].append((offsets, ids))

    def _count_partition(self, report: RegionsReport, home: OriginPartition) -> None:
        everywhere = Bitmap()
        inputs = self._inputs[home]
        due = self._due[home]
        mentions = 0
        for (region, where), answered in self._answered.items():
            if where == home:
                mentions += answered.count()
                report.by_region[region] = report.by_region.get(region, 0) + answered.count()
                everywhere.unite(answered)
        missing = due.minus(everywhere)
        phantoms = everywhere.minus(inputs)
        report.events += inputs.count()
        report.answered += everywhere.count()
        report.rescored += mentions - everywhere.count()
        pending = inputs.minus(everywhere).minus(due)
        report.pending += pending.count()
        report.pending_uncopied += pending.minus(self._copied[home]).count()
        report.note("missing", missing.count(), str(home), missing.first(EXAMPLES))
        report.note("phantoms", phantoms.count(), str(home), phantoms.first(EXAMPLES))
        different = _different(self._ids.pop(home, []))
        report.note("different_ids", len(different), str(home), different)


def _different(columns: Sequence[tuple[Integers, Integers]]) -> Integers:
    """Return the offsets of the events whose answers have more than one id.

    Args:
        columns: pairs of (n,) offsets of answered events and (n,) hashes of the answers' ids.
    """
    if not columns:
        return np.empty(0, np.int64)
    offsets, ids = (np.concatenate(column) for column in zip(*columns, strict=True))
    order = np.lexsort((ids, offsets))
    offsets = offsets[order]
    ids = ids[order]
    return np.unique(offsets[1:][(offsets[1:] == offsets[:-1]) & (ids[1:] != ids[:-1])])
