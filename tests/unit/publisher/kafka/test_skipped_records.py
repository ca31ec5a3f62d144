"""Skipped records: all are counted, the first are named, and the number of log lines is limited."""

import logging

import pytest

from publisher.kafka.skipped_records import SHOWN, SkippedRecords


def test_all_are_counted_and_few_are_named(caplog: pytest.LogCaptureFixture) -> None:
    skipped = SkippedRecords(logging.getLogger("test"))
    with caplog.at_level(logging.WARNING, "test"):
        for offset in range(1_000):
            skipped.skip("a", 1, offset, ValueError("no JSON"))
        skipped.skip("b", 0, 7, "x")
    assert skipped.counts == {"a": 1_000, "b": 1}
    messages = [record.getMessage() for record in caplog.records]
    assert messages[0] == "a[1]@0 is skipped as unreadable: no JSON (1 of this topic so far)"
    assert messages[-1] == "b[0]@7 is skipped as unreadable: x (1 of this topic so far)"
    assert len(messages) == SHOWN + 3 + 1
