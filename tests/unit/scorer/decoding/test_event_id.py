"""The id of an event: absent ids, and the ids in their place."""

import pytest

from scorer.decoding.batch import Headers
from scorer.decoding.event_id import event_id, field_ids
from scorer.decoding.headers import HeaderValues

SOURCE = ("events", 2, 77)
POSITION_ID = "eu/events/2/77"


@pytest.mark.parametrize(
    ("headers", "field", "expected"),
    [
        ([("ce_id", b"a")], "f", "a"),
        ([("ce_id", None)], "f", "f"),
        ([("ce_id", b"")], "f", "f"),
        ([("ce_id", b" ")], "f", " "),
        ([("ce_id", b" a ")], "f", " a "),
        ([("ce_id", b"a"), ("ce_id", b"")], "f", "f"),  # the last one counts
        ([], 0, "0"),
        ([], "", POSITION_ID),
        ([], " ", " "),
        ([("ce_id", b""), ("x-origin", b"us/t/0/1")], "", "us/t/0/1"),
        ([("ce_id", None), ("x-origin", b"")], None, POSITION_ID),
        ([("x-origin", None)], None, POSITION_ID),
        ([("x-origin", b"us/t/0/1"), ("x-copied-to", b"events/2")], None, "us/t/0/1"),
        ([("x-origin", b"us/t/0/1"), ("x-copied-to", b"events/1")], None, POSITION_ID),
        ([("x-origin", b"us/t/0/1"), ("x-copied-to", None)], None, POSITION_ID),
    ],
)
def test_an_id_that_identifies_nothing_is_absent(headers: Headers, field: str | int | None, expected: str) -> None:
    assert event_id(HeaderValues.from_headers(headers), field, "eu", SOURCE) == expected


def test_ids_of_a_batch_are_those_of_the_field_if_each_event_has_one() -> None:
    assert field_ids(["a", 1, " b"]) == ["a", "1", " b"]
    for absent in (None, ""):
        assert field_ids(["a", absent]) is None
