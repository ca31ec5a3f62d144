"""The count of a copy, against a plain one."""

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from publisher.audit.copies import Column, Copies, CopyReport, compare

PLACE = ("scores", "copies", 0)


def count(source: list[int], copies: list[int], due: int = 1_000, complete: bool = True) -> CopyReport:
    """Records are their own hashes; those from 500 on are somebody else's."""
    report = CopyReport()
    found = np.array(copies, np.int64)
    compare(
        report,
        PLACE,
        Column(np.array(source, np.int64), np.array(source, np.int64)),
        due,
        Copies(found, np.arange(len(copies)), found < 500, complete),
    )
    return report


@settings(max_examples=100)
@given(st.sets(st.integers(0, 30)), st.lists(st.integers(0, 30), max_size=40))
def test_it_counts_as_a_plain_count_does(there: set[int], copies: list[int]) -> None:
    source = sorted(there)
    report = count(source, copies)
    times = Counter(number for number in copies if number in there)
    assert (report.source, report.copies) == (len(source), sum(times.values()))
    assert report.missing == len(there - set(copies))
    assert report.duplicates == sum(times.values()) - len(times)
    assert report.phantoms == sum(number not in there for number in copies)
    firsts = list(dict.fromkeys(number for number in copies if number in there))
    seen = [number for number in copies if number in there]
    late = sum(number < max(seen[: seen.index(number) + 1]) for number in firsts)
    assert report.out_of_order == late
    assert report.clean == (not (report.missing or report.duplicates or report.phantoms or late))


def test_what_was_not_due_is_pending_and_what_is_from_elsewhere_is_told() -> None:
    report = count([1, 2, 3], [501, 1, 502], due=3)
    assert (report.missing, report.pending, report.others, report.phantoms) == (1, 1, 2, 0)
    assert report.examples["missing"] == ["scores/0/2"]


def test_what_the_destination_no_longer_keeps_is_not_missing() -> None:
    report = count([1, 2, 3, 4], [3, 4], complete=False)
    assert (report.clean, report.expired) == (True, 2)
    assert count([1, 2], [], complete=False).expired == 2
