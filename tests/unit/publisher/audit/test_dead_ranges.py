"""Dead letters of a whole batch of events."""

import numpy as np
import pytest

from publisher.audit.audited_records import DeadSource, dead_source
from publisher.audit.event_audit import Audit, AuditedAnswers, Kind, Window
from publisher.kafka.source_position import Position

PARTITION = ("flights", 0)
SOURCE = ("dead.source", b"eu/flights/0/40")
LAST = Position("eu", "flights", 0, 40)


def test_a_letter_covers_the_offsets_from_its_first_one_to_its_source() -> None:
    assert dead_source([SOURCE, ("dead.first", b"10")]) == DeadSource(10, LAST, ranged=True)
    assert dead_source([SOURCE]) == DeadSource(40, LAST, ranged=False)


def test_a_first_offset_among_the_headers_of_the_event_is_ignored() -> None:
    source = dead_source([("dead.source", b"eu/flights/0/7"), ("dead.first", b"0"), SOURCE])
    assert source == DeadSource(40, LAST, ranged=False)
    assert dead_source([("dead.first", b"0"), SOURCE]) == source


@pytest.mark.parametrize("first", [b"41", b"-1", b"", b"x", None, b"9" * 5_000, "\u0661".encode()])
def test_a_letter_with_a_bad_first_offset_is_unreadable(first: bytes | None) -> None:
    with pytest.raises(ValueError, match=r"is not an offset|greater than the offset in dead\.source, 40"):
        dead_source([SOURCE, ("dead.first", first)])


def audited(*inputs: int) -> Audit:
    """Audit a log with the offsets 0 to 99."""
    audit = Audit({PARTITION: Window(0, 100)})
    audit.add_inputs(PARTITION, np.array(inputs, np.int64))
    return audit


def test_every_offset_of_a_batch_is_an_event_that_is_dead_lettered_although_it_was_not_read() -> None:
    audit = audited(41, 42)
    audit.add_dead_range(PARTITION, 10, 41)
    report = audit.report()
    assert (report.events, report.dead_lettered, report.missing) == (33, 31, 2)


def test_a_batch_of_which_an_event_was_answered_too_is_a_duplicate() -> None:
    audit = audited()
    audit.add_answers(AuditedAnswers(("scores", 0), PARTITION, np.array([12]), np.array([Kind.SCORED], np.uint8), "sha256:a"))
    audit.add_dead_range(PARTITION, 10, 20)
    report = audit.report()
    assert (report.duplicates, report.examples) == (1, {"duplicates": ["flights/0/12"]})


def test_the_part_of_a_batch_beyond_the_end_of_its_partition_is_phantoms() -> None:
    audit = audited()
    audit.add_dead_range(PARTITION, 98, 2**63 - 1)
    audit.add_dead_range(("others", 0), 3, 5)
    report = audit.report()
    assert (report.events, report.dead_lettered, report.phantoms) == (2, 2, 2**63 - 1 - 100 + 2)
    assert report.examples["phantoms"][0] == "flights/0/100"


def test_a_batch_without_a_letter_is_missing() -> None:
    audit = audited(1)
    audit.add_unreadable_inputs(PARTITION, 90, 200)
    assert (audit.report().events, audit.report().missing) == (11, 11)
