"""The pure parts of the audit, each compared with a simpler count."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from publisher.audit.audited_records import DeletedTopicFilter, SwapRecord
from publisher.audit.duplicate_ids import RepeatedIds
from publisher.audit.offset_set import Bitmap
from publisher.audit.relay_audit import Copies, CopyReport, OriginColumn, compare
from publisher.audit.version_order import VersionCutover, regressions

PLACE = ("scores", "copies", 0)


def count(source: list[int], copies: list[int], due: int = 1_000, complete: bool = True) -> CopyReport:
    """Count records that are their own hashes; records from 500 on are of another region."""
    report = CopyReport()
    hashes = np.array(copies, np.int64)
    compare(
        report,
        PLACE,
        OriginColumn(np.array(source, np.int64), np.array(source, np.int64)),
        due,
        Copies(hashes, np.arange(len(copies)), hashes < 500, complete),
    )
    return report


@settings(max_examples=100)
@given(st.sets(st.integers(0, 30)), st.lists(st.integers(0, 30), max_size=40))
def test_copies_are_counted_as_by_a_simple_count(existing: set[int], copies: list[int]) -> None:
    source = sorted(existing)
    report = count(source, copies)
    times = Counter(number for number in copies if number in existing)
    assert (report.source, report.copies) == (len(source), sum(times.values()))
    assert report.missing == len(existing - set(copies))
    assert report.duplicates == sum(times.values()) - len(times)
    assert report.phantoms == sum(number not in existing for number in copies)
    firsts = list(dict.fromkeys(number for number in copies if number in existing))
    expected = [number for number in copies if number in existing]
    late = sum(number < max(expected[: expected.index(number) + 1]) for number in firsts)
    assert report.out_of_order == late
    assert report.clean == (not (report.missing or report.duplicates or report.phantoms or late))


def test_records_that_are_not_due_are_pending_and_foreign_copies_are_counted() -> None:
    report = count([1, 2, 3], [501, 1, 502], due=3)
    assert (report.missing, report.pending, report.others, report.phantoms) == (1, 1, 2, 0)
    assert report.examples["missing"] == ["scores/0/2"]


def test_records_that_the_destination_deleted_are_not_missing() -> None:
    report = count([1, 2, 3, 4], [3, 4], complete=False)
    assert (report.clean, report.expired) == (True, 2)
    assert count([1, 2], [], complete=False).expired == 2


@given(st.lists(st.lists(st.integers(-20, 20))))
def test_exact_while_the_table_suffices(batches: list[list[int]]) -> None:
    ids = RepeatedIds(limit=64, pending_limit=5)
    for batch in batches:
        ids.add(np.array(batch, np.int64))
    mentions = Counter(id_ for batch in batches for id_ in batch)
    assert ids.count() == sum(count - 1 for count in mentions.values())
    assert ids.sampled == 1


def test_an_estimate_when_it_is_full() -> None:
    ids = RepeatedIds(limit=4_096, pending_limit=1_000)
    once, thrice = np.arange(100_000), np.arange(100_000, 150_000)
    for hashes in np.array_split(np.concatenate([once, thrice, thrice, thrice]), 97):
        ids.add(hashes)
    assert ids.sampled == 64
    assert ids.count() == pytest.approx(100_000, rel=0.1)


HERE, OUT = ("flights", 0), [("scores", 0), ("scores", 1)]


def swap(topic_id: str, scores: list[int] | None = None, letters: list[int] | None = None) -> SwapRecord:
    return SwapRecord(*HERE, 0, 1, "sha256:a", topic_id, scores, letters)


def test_answers_before_the_first_to_the_new_topic_are_lost() -> None:
    logs = DeletedTopicFilter({"flights": "new"})
    assert not logs.is_deleted(HERE, OUT[0], 0)
    assert not logs.add_swap(swap("old"))
    assert logs.is_deleted(HERE, OUT[0], 99)  # no event of the new topic is answered
    assert logs.add_swap(swap("new", [7, 3], [1]))
    assert logs.add_swap(swap("new", [70, 30], [10]))  # only the first record counts
    assert [logs.is_deleted(HERE, OUT[0], at) for at in (6, 7)] == [True, False]
    assert [logs.is_deleted(HERE, OUT[1], at) for at in (2, 3)] == [True, False]
    assert [logs.is_deleted(HERE, ("dead", 0), at, dead=True) for at in (0, 1)] == [True, False]
    assert not logs.is_deleted(HERE, ("scores", 2), 0)  # a partition of the output that was added since
    without_ids = DeletedTopicFilter({})
    assert all(without_ids.add_swap(swap(topic_id)) for topic_id in ("", "old", "new"))
    assert not without_ids.is_deleted(HERE, OUT[0], 0)


DIGESTS = ["a", "b", "c"]


def bitmaps(scores: str, first: int = 0) -> dict[str, Bitmap]:
    """Return the offsets that each digest scored, from one letter for each position; a dot is no score."""
    result: dict[str, Bitmap] = {}
    for offset, digest in enumerate(scores, first):
        if digest != ".":
            result.setdefault(digest, Bitmap()).add(np.array([offset]))
    return result


@pytest.mark.parametrize(
    ("scores", "swaps", "expected"),
    [
        ("aabab.a", [], [3, 6]),
        ("aaabaa", [VersionCutover(3, 2, "b"), VersionCutover(4, 3, "a")], []),
        ("aaabaa", [VersionCutover(0, 1, "a"), VersionCutover(3, 2, "b"), VersionCutover(4, 1, "a")], [4, 5]),
        ("aaxaa", [VersionCutover(0, 1, "a")], [2]),
        ("aabb", [VersionCutover(0, 5, "a", "h1"), VersionCutover(2, 1, "b", "h2")], []),
        ("aabb", [VersionCutover(0, 5, "a"), VersionCutover(2, 1, "b", "h2")], [2, 3]),
        ("aaaa", [VersionCutover(0, 5, "a", "h1"), VersionCutover(1, 1, "a", "h2"), VersionCutover(2, 5, "a", "h1")], []),
        ("abca", [VersionCutover(0, 5, "a", "h1"), VersionCutover(1, 2, "b", "h2"), VersionCutover(2, 1, "c", "h2")], [2]),
        ("abab", [VersionCutover(0, 5, "a", "h1"), VersionCutover(1, 1, "b", "h2"), VersionCutover(2, 4, "c", "h1")], []),
    ],
    ids=str,
)
def test_regressions_of_example_histories(scores: str, swaps: list[VersionCutover], expected: list[int]) -> None:
    assert regressions(bitmaps(scores), swaps, 9) == (len(expected), expected)


def by_definition(scores: str, swaps: list[VersionCutover]) -> list[int]:
    """Walk the positions: a score is older when a higher revision was swapped in, or has scored, before it.

    Only revisions of one history are compared, and revisions of an unknown history ("") with all revisions.
    """
    begin = min((swap.offset for swap in swaps), default=10**9)
    early = list(dict.fromkeys(digest for digest in scores[:begin] if digest != "."))
    records = [VersionCutover(scores.index(digest), rank - len(early), digest) for rank, digest in enumerate(early)] + swaps
    late: list[int] = []
    scored: list[tuple[int, str]] = []
    for offset, digest in enumerate(scores):
        if digest == ".":
            continue
        records_of_digest = sorted(record for record in records if record.digest == digest)
        past = [record for record in records_of_digest if record.offset <= offset]
        history = (past[-1:] or records_of_digest[:1] or [VersionCutover(0, 0, digest)])[-1].history
        revisions = [record.revision for record in past or records_of_digest if record.history in ("", history)]
        revision = max(revisions) if past else min(revisions, default=-(10**9))
        in_force = [*scored, *((record.revision, record.history) for record in records if record.offset <= offset)]
        if any(other > revision and (not history or name in ("", history)) for other, name in in_force):
            late.append(offset)
        scored.append((revision, history))
    return late


def swap_records(*histories: str) -> st.SearchStrategy[list[VersionCutover]]:
    parts = st.integers(0, 12), st.integers(1, 5), st.sampled_from(DIGESTS), st.sampled_from(histories)
    return st.lists(st.builds(VersionCutover, *parts), max_size=5)


@given(st.text("abcx.", max_size=14), swap_records("") | swap_records("h1", "h2"))
def test_any_history_against_the_definition(scores: str, swaps: list[VersionCutover]) -> None:
    expected = by_definition(scores, swaps)
    assert regressions(bitmaps(scores), swaps, 20) == (len(expected), expected)


@given(st.text("ab", min_size=1, max_size=14), st.integers(0, 2**40), st.integers(0, 3))
def test_examples_are_the_first_ones_wherever_the_partition_begins(scores: str, first: int, limit: int) -> None:
    expected = [first + offset for offset in by_definition(scores, [])]
    assert regressions(bitmaps(scores, first), [], limit) == (len(expected), expected[:limit])
