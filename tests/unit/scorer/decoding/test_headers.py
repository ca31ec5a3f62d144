"""The headers of an event: absent and unreadable values."""

import pytest

from scorer.decoding.headers import HeaderValues
from tests.unit.scorer.decoding.formats import texts


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


def test_an_unreadable_origin_has_no_effect_beside_an_id() -> None:
    assert HeaderValues.from_headers([("ce_id", b"a"), ("x-origin", b"\xff")]).bad_id is None


def test_an_empty_text_is_found_among_others() -> None:
    assert not texts([b"a", b" "]).any_empty()
    assert texts([b"a", b""]).any_empty()
    assert texts([b"a", None]).any_empty()
