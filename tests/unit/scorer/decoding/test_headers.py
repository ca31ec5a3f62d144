"""The id of an event: what counts as absent, and what is unreadable."""

import pytest

from scorer.decoding.batch import Headers
from scorer.decoding.headers import HeaderValues, event_id, field_ids
from tests.unit.scorer.decoding.formats import texts

SOURCE = ("events", 2, 77)
OWN = "eu/events/2/77"


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
        ([], "", OWN),
        ([], " ", " "),
        ([("ce_id", b""), ("x-origin", b"us/t/0/1")], "", "us/t/0/1"),
        ([("ce_id", None), ("x-origin", b"")], None, OWN),
        ([("x-origin", None)], None, OWN),
        ([("x-origin", b"us/t/0/1"), ("x-copied-to", b"events/2")], None, "us/t/0/1"),
        ([("x-origin", b"us/t/0/1"), ("x-copied-to", b"events/1")], None, OWN),
        ([("x-origin", b"us/t/0/1"), ("x-copied-to", None)], None, OWN),
    ],
)
def test_an_id_that_identifies_nothing_is_absent(headers: Headers, field: str | int | None, expected: str) -> None:
    assert event_id(HeaderValues.from_headers(headers), field, "eu", SOURCE) == expected


@pytest.mark.parametrize("name", ["ce_id", "x-origin"])
def test_an_id_that_is_not_utf8_is_named(name: str) -> None:
    assert (
        HeaderValues.from_headers([(name, b"\xffa")]).bad_id
        == f"header {name} is b'\\xffa', which is not UTF-8; write text in UTF-8"
    )
    assert HeaderValues.from_headers([("other", b"\xff")]).bad_id is None


def test_a_null_deadline_is_absent() -> None:
    assert HeaderValues.from_headers([("deadline", None), ("other", None)]) == HeaderValues()
    assert HeaderValues.from_headers([("deadline", b"5"), ("deadline", None)]).deadline is None
    assert HeaderValues.from_headers([("deadline", b"")]).bad_deadline == ""


def test_an_unreadable_origin_does_not_matter_beside_an_id() -> None:
    assert HeaderValues.from_headers([("ce_id", b"a"), ("x-origin", b"\xff")]).bad_id is None


def test_ids_of_a_batch_are_those_of_the_field_if_each_event_has_one() -> None:
    assert field_ids(["a", 1, " b"]) == ["a", "1", " b"]
    for other in (None, ""):
        assert field_ids(["a", other]) is None


def test_an_empty_text_is_found_among_others() -> None:
    assert not texts([b"a", b" "]).any_empty()
    assert texts([b"a", b""]).any_empty()
    assert texts([b"a", None]).any_empty()
