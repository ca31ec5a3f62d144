"""Check whether a partition returns to an older model version. Pure: swap records and scored offsets in, a count out.

A score names the digest that scored it, not the channel revision: after a rollback the same digest stands for a newer revision.
Swap records resolve this: from its cut-over offset on, a digest stands for the highest revision that was swapped in for it.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from publisher.audit.offset_set import EVERYTHING, Bitmap


class VersionCutover(NamedTuple):
    """From `offset` (the cut-over) on, a partition's events are scored by `digest`, which the channel named at `revision`."""

    offset: int
    revision: int
    digest: str


class Segment(NamedTuple):
    """In [start, stop) the digest stands for `revision`; `is_recorded` if a swap record at `start` states it."""

    digest: str
    revision: int
    start: int
    stop: int
    is_recorded: bool


def regressions(scored: Mapping[str, Bitmap], swaps: Sequence[VersionCutover], limit: int) -> tuple[int, list[int]]:
    """Return the number of positions scored by an older revision than an earlier one, and the first positions.

    `scored` holds the offsets that each digest scored. Digests before the first swap record (or without one) rank by their
    first appearance, below every recorded revision. A digest that is neither is older than all.
    """
    first = {digest: offsets[0] for digest, bitmap in scored.items() if (offsets := bitmap.first(1))}
    segments = _segments([*_before_records(first, swaps), *swaps], first)
    reigns = [(revision, at) for segment in segments for revision, at in _reign(segment, scored)]
    total = 0
    examples = list[int]()
    for digest, revision, start, stop, _ in segments:
        since = min((at for other, at in reigns if other > revision), default=EVERYTHING)
        if digest in scored:
            total += scored[digest].count(max(start, since), stop)
            examples += scored[digest].first(limit, max(start, since), stop)
    return total, sorted(set(examples))[:limit]


def _before_records(first: Mapping[str, int], swaps: Sequence[VersionCutover]) -> list[VersionCutover]:
    """Return the versions before the first record, oldest first, with negative revisions."""
    begin = min((swap.offset for swap in swaps), default=EVERYTHING)
    early = sorted((offset, digest) for digest, offset in first.items() if offset < begin)
    return [VersionCutover(offset, rank - len(early), digest) for rank, (offset, digest) in enumerate(early)]


def _segments(swaps: Sequence[VersionCutover], first: Mapping[str, int]) -> list[Segment]:
    """Return each digest's ranges of the partition with their revisions."""
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


def _reign(segment: Segment, scored: Mapping[str, Bitmap]) -> list[tuple[int, int]]:
    """Return (revision, first offset that no older version may score): the cut-over, or after an early score."""
    if segment.is_recorded:
        return [(segment.revision, segment.start)]
    bitmap = scored.get(segment.digest)
    return [(segment.revision, at + 1) for at in bitmap.first(1, segment.start, segment.stop)] if bitmap else []
