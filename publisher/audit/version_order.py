"""Check whether an older model version has scored a partition after a newer one. Pure.

Swap records (see `SwapRecord`) contain the revision of the registry channel that named the version. A version with a higher
revision is newer. Revisions are compared only within one history of the channel: a recreated channel begins another
history.
"""

# Versions are ordered by the revision of the registry channel that named them. A score contains only the digest of its model
# version, and after a rollback the same digest has a newer revision than before. The revision of a score is therefore taken
# from the swap records: it is the revision of the last cut-over to the digest at or before the offset. If an earlier cut-over
# to the same digest has a higher revision, the higher revision is used.
#
# A channel that is created again, for example in another registry, has another history and counts its revisions from 1.
# Revisions are therefore compared only within one history. A swap record of an earlier release has no id of a history; its
# revision is compared with all revisions.

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from publisher.audit.offset_set import EVERYTHING, Bitmap


class VersionCutover(NamedTuple):
    """The change of a partition to another model version.

    Attributes:
        offset: the first offset that the version scores.
        revision: the revision of the registry channel that selected the version.
        digest: the digest of the version.
        history: the id of the registry channel's history to which the revision belongs; "" if unknown.
    """

    offset: int
    revision: int
    digest: str
    history: str = ""


class Segment(NamedTuple):
    """A range of offsets [start, stop) of a partition that one model version scores, at one revision of the registry channel.

    `is_recorded` is false for the offsets before the version's first cutover: its first swap record or, if it scored before all
    swap records, its first score.
    """

    digest: str
    revision: int
    start: int
    stop: int
    is_recorded: bool
    history: str = ""


class Reign(NamedTuple):
    """The offset from which a revision of the registry channel excludes older revisions.

    At or after `offset`, no event of the partition may be scored at a revision below `revision` of the same history.
    """

    revision: int
    offset: int
    history: str


def regressions(scored: Mapping[str, Bitmap], swaps: Sequence[VersionCutover], limit: int) -> tuple[int, list[int]]:
    """Return how many events an older version scored after a newer one, and the first of their offsets.

    Args:
        scored: the offsets that each version has scored, by the digest of the version.
        swaps: the changes of the version in the swap records.
        limit: the largest number of offsets to return.
    """
    # Digests that scored before the first swap record (without a swap record, all digests) are ordered by their first score,
    # and are older than every revision in a swap record. A digest that scored only later, and that no swap record names, is the
    # oldest.
    first = {digest: offsets[0] for digest, bitmap in scored.items() if (offsets := bitmap.first(1))}
    segments = _segments([*_before_records(first, swaps), *swaps], first)
    reigns = [reign for segment in segments for reign in _reigns(segment, scored)]
    total = 0
    examples = list[int]()
    for digest, revision, start, stop, _, history in segments:
        newer = (reign.offset for reign in reigns if reign.revision > revision and _is_comparable(reign.history, history))
        since = min(newer, default=EVERYTHING)
        if digest in scored:
            total += scored[digest].count(max(start, since), stop)
            examples += scored[digest].first(limit, max(start, since), stop)
    return total, sorted(set(examples))[:limit]


def _is_comparable(history: str, other: str) -> bool:
    return not history or not other or history == other


def _before_records(first: Mapping[str, int], swaps: Sequence[VersionCutover]) -> list[VersionCutover]:
    """Return a cutover at the first score of each version that scored before the first swap record, oldest first.

    `first` has the first offset that each version scored, by the digest of the version.
    """
    # Their revisions are negative, so that they are older than every revision in a swap record.
    begin = min((swap.offset for swap in swaps), default=EVERYTHING)
    early = sorted((offset, digest) for digest, offset in first.items() if offset < begin)
    return [VersionCutover(offset, rank - len(early), digest) for rank, (offset, digest) in enumerate(early)]


def _segments(swaps: Sequence[VersionCutover], first: Mapping[str, int]) -> list[Segment]:
    """Return the segments of each version. The segments of one version cover all offsets of the partition.

    The first segment of a version starts at offset 0. Each swap record of the version starts another segment.
    `first` has the first offset that each version scored, by the digest of the version.
    """
    segments = []
    oldest = min((swap.revision for swap in swaps), default=0) - 1
    for digest in {swap.digest for swap in swaps} | set(first):
        own_swaps = sorted((swap for swap in swaps if swap.digest == digest), key=lambda swap: (swap.offset, swap.revision))
        starts = [*(swap.offset for swap in own_swaps), EVERYTHING]
        history = own_swaps[0].history if own_swaps else ""
        comparable = [swap.revision for swap in own_swaps if _is_comparable(swap.history, history)]
        early = min(comparable, default=oldest)  # scored before its own cut-over
        segments.append(Segment(digest, early, 0, starts[0], False, history))
        highest = {history: early}
        for swap, stop in zip(own_swaps, starts[1:], strict=True):
            earlier = [revision for other, revision in highest.items() if _is_comparable(other, swap.history)]
            highest[swap.history] = max([swap.revision, *earlier])
            segments.append(Segment(digest, highest[swap.history], swap.offset, stop, True, swap.history))
    return segments


def _reigns(segment: Segment, scored: Mapping[str, Bitmap]) -> list[Reign]:
    """Return a list that contains the `Reign` of a segment, or an empty list.

    The list is empty if no swap record names the start of the segment and the version has scored no event in the segment.
    """
    # They begin at the start of the segment if a swap record names it, otherwise after the first score in the segment.
    if segment.is_recorded:
        return [Reign(segment.revision, segment.start, segment.history)]
    bitmap = scored.get(segment.digest)
    firsts = bitmap.first(1, segment.start, segment.stop) if bitmap else []
    return [Reign(segment.revision, at + 1, segment.history) for at in firsts]
