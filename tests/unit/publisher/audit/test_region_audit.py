"""The count over regions, and the report that all audits share, without a broker."""

import io

import numpy as np
from rich.console import Console

from publisher.audit import cli_view
from publisher.audit.region_audit import OriginPartition, RegionsAudit
from publisher.audit.report import EXAMPLES

EVENTS = ("events", 0)
COPY = ("eu.events", 0)
AT_HOME = OriginPartition("eu", "events", 0)


def counted(*, us_ids: list[int], us_due: int = 8, us_answers: list[int] | None = None) -> RegionsAudit:
    """eu wrote and answered offsets 0 to 5 (of 8); us holds copies of all at its offsets 0, 2, 4, ... and answered the last."""
    audit = RegionsAudit()
    audit.add_inputs("eu", EVENTS, np.arange(8), {}, 5)
    audit.add_inputs("us", COPY, np.empty(0, np.int64), {AT_HOME: (np.arange(8) * 2, np.arange(8))}, 2 * us_due)
    audit.add_answers("eu", EVENTS, np.arange(6), np.arange(6) + 100)
    answers = [8, 10, 12, 14] if us_answers is None else us_answers
    audit.add_answers("us", COPY, np.array(answers), np.array(us_ids))
    return audit


def test_an_event_that_both_regions_answered_is_rescored_and_a_fault_only_under_another_id() -> None:
    report = counted(us_ids=[104, 105, 106, 107]).report()
    assert report.clean
    assert (report.events, report.answered, report.rescored, report.pending) == (8, 8, 2, 0)
    assert report.by_region == {"eu": 6, "us": 4}
    report = counted(us_ids=[104, 999, 106, 107]).report()
    assert (report.clean, report.different_ids) == (False, 1)
    assert report.examples["different_ids"] == ["eu/events/0/5"]


def test_an_event_that_no_region_answered_is_missing_if_due_and_else_pending() -> None:
    report = counted(us_ids=[106], us_answers=[12]).report()
    assert (report.missing, report.pending, report.examples) == (1, 0, {"missing": ["eu/events/0/7"]})
    report = counted(us_ids=[106], us_answers=[12], us_due=7).report()
    assert (report.missing, report.pending, report.clean) == (0, 1, True)


def test_pending_events_without_a_copy_are_counted_as_the_part_of_the_relay() -> None:
    audit = RegionsAudit()
    audit.add_inputs("eu", EVENTS, np.arange(10), {}, 4)
    audit.add_inputs("us", COPY, np.empty(0, np.int64), {AT_HOME: (np.arange(7), np.arange(7))}, 5)
    audit.add_answers("eu", EVENTS, np.arange(5), np.arange(5))
    report = audit.report()
    assert (report.pending, report.pending_uncopied, report.clean) == (5, 3, True)
    assert report.notes() == [
        "3 of the pending events have no copy in another region: the relay has not copied them yet",
    ]
    assert counted(us_ids=[104, 105, 106, 107]).report().notes() == []


def test_second_answers_in_one_region_and_answers_to_nothing_are_faults() -> None:
    report = counted(us_ids=[104, 104, 1, 2], us_answers=[8, 8, 12, 77]).report()
    assert (report.duplicates, report.phantoms) == (1, 1)
    audit = RegionsAudit()
    audit.add_answers("eu", EVENTS, np.array([3]), None)
    assert audit.report().phantoms == 1


def test_deleted_records_are_counted_and_unreadable_ones_are_faults_with_their_position() -> None:
    audit = RegionsAudit()
    audit.count_deleted(3)
    for offset in range(EXAMPLES + 2):
        audit.count_unreadable("eu west", ("scores", 1), offset)
    report = audit.report()
    assert (report.gone, report.unreadable, report.clean) == (3, EXAMPLES + 2, False)
    assert report.examples == {"unreadable": [f"eu%20west/scores/1/{offset}" for offset in range(EXAMPLES)]}
    assert {"clean", "gone", "by_region", "examples"} < set(report.to_dict())


def test_the_table_has_every_count_and_the_answers_by_region() -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(cli_view.table(counted(us_ids=[104, 999, 106, 107]).report()))
    output = console.export_text()
    for cell in ("audit over regions", "different_ids", "eu/events/0/5", "answered in us", "gone"):
        assert cell in output
