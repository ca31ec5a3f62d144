"""Version regressions are held against a count by the definition, one position at a time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.audit.bitmap import Bitmap
from publisher.audit.revisions import Swap, regressions

DIGESTS = ["a", "b", "c"]


def bitmaps(scores: str, first: int = 0) -> dict[str, Bitmap]:
    """One letter a position: the digest that scored it; a dot for none."""
    result: dict[str, Bitmap] = {}
    for offset, digest in enumerate(scores, first):
        if digest != ".":
            result.setdefault(digest, Bitmap()).add(np.array([offset]))
    return result


@pytest.mark.parametrize(
    ("scores", "swaps", "expected"),
    [
        ("aaabbb", [], []),
        ("aabab.a", [], [3, 6]),
        ("abcabc", [], [3, 4]),
        ("aaabbb", [Swap(3, 2, "b")], []),
        ("aaabab", [Swap(3, 2, "b")], [4]),
        ("aaabaa", [Swap(3, 2, "b"), Swap(4, 3, "a")], []),
        ("aaabab", [Swap(3, 2, "b"), Swap(4, 3, "a")], [5]),
        ("aaabaa", [Swap(0, 1, "a"), Swap(3, 2, "b"), Swap(4, 1, "a")], [4, 5]),
        ("...cbb", [Swap(0, 1, "a"), Swap(3, 2, "b"), Swap(5, 3, "c")], [4, 5]),
        ("aaxaa", [Swap(0, 1, "a")], [2]),
        ("abab", [Swap(0, 1, "a"), Swap(0, 1, "b")], []),
        ("a.a", [Swap(1, 2, "b")], [2]),
        ("", [Swap(1, 2, "b")], []),
    ],
    ids=str,
)
def test_stories(scores: str, swaps: list[Swap], expected: list[int]) -> None:
    assert regressions(bitmaps(scores), swaps, 9) == (len(expected), expected)


def by_definition(scores: str, swaps: list[Swap]) -> list[int]:
    """Walk the positions: a score is older when a higher revision was swapped in, or has scored, before it."""
    begin = min((swap.offset for swap in swaps), default=10**9)
    early = list(dict.fromkeys(digest for digest in scores[:begin] if digest != "."))
    records = [Swap(scores.index(digest), rank - len(early), digest) for rank, digest in enumerate(early)] + swaps
    late, highest = [], -(10**9)
    for offset, digest in enumerate(scores):
        highest = max([highest, *(record.revision for record in records if record.offset <= offset)])
        if digest == ".":
            continue
        mine = [record for record in records if record.digest == digest]
        past = [record.revision for record in mine if record.offset <= offset]
        revision = max(past) if past else min((record.revision for record in mine), default=-(10**9))
        if revision < highest:
            late.append(offset)
        highest = max(highest, revision)
    return late


swap_records = st.builds(Swap, st.integers(0, 12), st.integers(1, 5), st.sampled_from(DIGESTS))


@given(st.text("abcx.", max_size=14), st.lists(swap_records, max_size=5))
def test_any_history_against_the_definition(scores: str, swaps: list[Swap]) -> None:
    expected = by_definition(scores, swaps)
    assert regressions(bitmaps(scores), swaps, 20) == (len(expected), expected)


@given(st.text("ab", min_size=1, max_size=14), st.integers(0, 2**40), st.integers(0, 3))
def test_examples_are_the_first_ones_wherever_the_partition_begins(scores: str, first: int, limit: int) -> None:
    expected = [first + offset for offset in by_definition(scores, [])]
    assert regressions(bitmaps(scores, first), [], limit) == (len(expected), expected[:limit])
