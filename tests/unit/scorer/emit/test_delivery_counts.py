"""Delivery results of emit, and the line at which another run continues."""

from scorer.emit.delivery_counts import Confirmations, DeliveryCounts


def sent_lines(*lines: int, skipped: int = 0) -> Confirmations:
    confirmations = Confirmations(skipped)
    for line in lines:
        confirmations.add_sent(line)
    return confirmations


def test_skip_is_the_last_line_if_all_events_are_confirmed() -> None:
    counts = sent_lines(1, 2, 4)
    for line in (4, 1, 2):
        counts.confirm(line)
    assert counts.complete
    assert counts.counts() == DeliveryCounts(written=3, uncertain=0, rejected=0, skip=4, repeated=0)
    assert counts.counts().progress() == (
        "3 events were written",
        "to write the remaining events, run the command again with --skip 4",
    )


def test_another_run_continues_before_the_first_event_that_is_not_confirmed() -> None:
    counts = sent_lines(11, 13, 14, 15, skipped=10)
    for line in (11, 14, 15):
        counts.confirm(line)
    assert not counts.complete
    assert counts.counts() == DeliveryCounts(written=3, uncertain=1, rejected=0, skip=12, repeated=2)
    assert counts.counts().progress() == (
        "3 events were written, 1 are uncertain: sent but not confirmed",
        "to write the remaining events, run the command again with --skip 12, "
        "which writes 1 uncertain events and 2 confirmed events after them again",
    )


def test_a_rejected_event_is_neither_written_nor_uncertain_and_another_run_tries_it_again() -> None:
    counts = sent_lines(1, 2, 3)
    counts.confirm(1)
    counts.fail(rejected=True)
    counts.fail(rejected=False)
    assert counts.complete
    assert counts.counts() == DeliveryCounts(written=1, uncertain=1, rejected=1, skip=1, repeated=0)


def test_withdrawn_event_is_not_counted() -> None:
    counts = sent_lines(1, 2)
    counts.confirm(1)
    counts.undo_sent(2)
    assert counts.complete
    assert counts.counts() == DeliveryCounts(written=1, uncertain=0, rejected=0, skip=1, repeated=0)


def test_nothing_written_leaves_nothing_to_continue() -> None:
    assert sent_lines().counts().progress() == ("0 events were written", "")
    assert sent_lines(skipped=5).counts().skip == 5
