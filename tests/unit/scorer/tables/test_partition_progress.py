"""The lag of a table is the time since the position last equalled the end, also while no broker answers."""

import math

from scorer.tables.partition_progress import MAX_ENDS, TRUNCATED_SECONDS, TablePartitionProgress


def test_the_lag_grows_from_the_start_until_an_end_is_reached() -> None:
    progress = TablePartitionProgress(100.0)
    progress.record_end(101.0, 5, 0)
    progress.reach(4)
    assert progress.lag_seconds(107.0) == 7.0
    progress.reach(5)
    assert progress.lag_seconds(107.0) == 6.0


def test_the_lag_grows_while_no_broker_answers() -> None:
    progress = TablePartitionProgress(0.0)
    progress.record_end(1.0, 0, 0)
    assert progress.lag_seconds(61.0) == 60.0


def test_a_partition_is_restored_once_it_reaches_an_end_after_the_assignment() -> None:
    progress = TablePartitionProgress(0.0)
    progress.record_end(1.0, 3, 0)
    progress.reach(3)
    assert not progress.is_restored(since=2.0)
    progress.record_end(2.5, 10, 0)
    progress.reach(9)
    assert not progress.is_restored(since=2.0)
    progress.reach(12)
    assert progress.is_restored(since=2.0)


def test_a_busy_table_is_level_with_the_newest_reached_end() -> None:
    progress = TablePartitionProgress(0.0)
    for second in range(1, 11):
        progress.record_end(float(second), 100 * second, 0)
    progress.reach(750)
    assert progress.level_at == 7.0
    assert progress.end == 1_000


def test_a_position_that_stays_after_the_end_is_not_valid() -> None:
    progress = TablePartitionProgress(0.0)
    progress.reach(10)
    assert progress.record_end(1.0, 9, 10)
    assert not progress.record_end(1.0 + TRUNCATED_SECONDS, 9, 10)
    assert progress.level_at == -math.inf


def test_a_position_that_is_after_the_end_for_a_moment_is_valid() -> None:
    progress = TablePartitionProgress(0.0)
    progress.reach(10)
    assert progress.record_end(1.0, 9, 10)
    assert progress.record_end(2.0, 10, 10)
    assert progress.record_end(2.0 + TRUNCATED_SECONDS, 9, 10)


def test_records_that_arrive_during_a_request_do_not_invalidate_the_position() -> None:
    progress = TablePartitionProgress(0.0)
    progress.reach(10)
    assert progress.record_end(1.0, 9, 9)
    assert progress.record_end(1.0 + TRUNCATED_SECONDS, 9, 9)
    assert progress.level_at == 1.0 + TRUNCATED_SECONDS


def test_the_lag_of_a_long_restore_is_right_although_few_ends_are_kept() -> None:
    progress = TablePartitionProgress(0.0)
    for second in range(1, 20 * MAX_ENDS):
        progress.record_end(float(second), 10, 0)
    progress.reach(10)
    assert progress.level_at == 20 * MAX_ENDS - 1
