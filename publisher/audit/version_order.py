"""Check whether an older model version has scored a partition after a newer one. Pure: swap records and scores in, counts out.

A score contains the digest of its model version, not the channel revision, and after a rollback the same digest stands for a
newer revision. Swap records resolve this: from the offset of a cut-over on, the digest stands for the revision of the cut-over,
unless an earlier cut-over of this digest has a higher revision.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from publisher.audit.offset_set import EVERYTHING, Bitmap


class VersionCutover(NamedTuple):
    """The cut-over of a partition to a model version.

    Attributes:
        offset: the first offset that the version scores.
        revision: the revision of the channel that named the version.
        digest: the digest of the version.
    """

    offset: int
    revision: int
    digest: str


class Segment(NamedTuple):
    """The offsets [start, stop) of a partition, in which `digest` stands for `revision`.

    `is_recorded` is whether a swap record has a cut-over to the digest at `start`.
    """

    digest: str
    revision: int
    start: int
    stop: int
    is_recorded: bool


def regressions(scored: Mapping[str, Bitmap], swaps: Sequence[VersionCutover], limit: int) -> tuple[int, list[int]]:
    """Return the number of events that an older revision than that of an earlier event has scored, and their first offsets.

    Digests that scored before the first cut-over, or all digests if there is none, are ordered by their first score, and are
    older than every revision of a swap record. A digest that scored only later, and that no swap record names, is the oldest.

    Args:
        scored: the offsets that each digest has scored.
        swaps: the cut-overs of the swap records.
        limit: the largest number of offsets to return.
    """
    first = {digest: offsets[0] for digest, bitmap in scored.items() if (offsets := bitmap.first(1))}
    segments = _segments([*_before_records(first, swaps), *swaps], first)
    reigns = [(revision, at) for segment in segments for revision, at in _first_exclusive_offset(segment, scored)]
    total = 0
    examples = list[int]()
    for digest, revision, start, stop, _ in segments:
        since = min((at for other, at in reigns if other > revision), default=EVERYTHING)
        if digest in scored:
            total += scored[digest].count(max(start, since), stop)
            examples += scored[digest].first(limit, max(start, since), stop)
    return total, sorted(set(examples))[:limit]


def _before_records(first: Mapping[str, int], swaps: Sequence[VersionCutover]) -> list[VersionCutover]:
    """Return cut-overs, with negative revisions, for the digests that scored before the first swap record, oldest first."""
    begin = min((swap.offset for swap in swaps), default=EVERYTHING)
    early = sorted((offset, digest) for digest, offset in first.items() if offset < begin)
    return [VersionCutover(offset, rank - len(early), digest) for rank, (offset, digest) in enumerate(early)]


def _segments(swaps: Sequence[VersionCutover], first: Mapping[str, int]) -> list[Segment]:
    """Divide the offsets of the partition for each digest into segments, in which the digest stands for one revision."""
    segments = []
    oldest = min((swap.revision for swap in swaps), default=0) - 1
    for digest in {swap.digest for swap in swaps} | set(first):
        own_swaps = sorted((swap for swap in swaps if swap.digest == digest), key=lambda swap: (swap.offset, swap.revision))
        starts = [*(swap.offset for swap in own_swaps), EVERYTHING]
        early = min((swap.revision for swap in own_swaps), default=oldest)  # scored before its own cut-over
        segments.append(Segment(digest, early, 0, starts[0], False))
        revision = early
        for swap, stop in zip(own_swaps, starts[1:], strict=True):
            revision = max(revision, swap.revision)
            segments.append(Segment(digest, revision, swap.offset, stop, True))
    return segments


def _first_exclusive_offset(segment: Segment, scored: Mapping[str, Bitmap]) -> list[tuple[int, int]]:
    """Return the revision of a segment, and the first offset that no older revision may score; empty if there is none.

    This is the cut-over of a recorded segment. For another segment it is the offset after its first score.
    """
    if segment.is_recorded:
        return [(segment.revision, segment.start)]
    bitmap = scored.get(segment.digest)
    return [(segment.revision, at + 1) for at in bitmap.first(1, segment.start, segment.stop)] if bitmap else []
