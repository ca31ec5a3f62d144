"""The time range in which a comparison counts events beside the records of the feature log."""

from publisher.runtime.time_range import ALWAYS, LATEST_MS, TimeRange
from scorer.evaluation.compare_versions import RecordTimes, counted_range


def test_events_are_counted_in_the_time_range_of_the_newest_records() -> None:
    assert counted_range(ALWAYS, 1_000, RecordTimes(50, 90)) == TimeRange(50, 91)
    assert counted_range(TimeRange(10, 200), 1_000, RecordTimes(50, 90)) == TimeRange(50, 91)


def test_without_a_number_of_records_events_are_counted_in_the_window() -> None:
    assert counted_range(TimeRange(10, 200), None, RecordTimes(50, 90)) == TimeRange(10, 200)


def test_without_records_events_are_counted_in_the_window() -> None:
    assert counted_range(ALWAYS, 1_000, None) == ALWAYS


def test_impossible_timestamps_do_not_extend_the_range() -> None:
    assert counted_range(ALWAYS, 1_000, RecordTimes(-1, 1 << 62)) == TimeRange(0, LATEST_MS + 1)
