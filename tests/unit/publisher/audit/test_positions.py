"""A position is parsed from its header form, and any other text is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.kafka import source_position
from publisher.kafka.source_position import LARGEST_OFFSET, LARGEST_PARTITION, Position

names = st.text(st.characters(codec="utf-8"))
places = st.builds(Position, names, names.filter(bool), st.integers(0, LARGEST_PARTITION), st.integers(0, LARGEST_OFFSET))


@given(places)
def test_round_trip_through_a_header(position: Position) -> None:
    assert source_position.parse(str(position).encode("ascii")) == position
    assert source_position.parse(str(position)) == position


def test_the_form_is_the_contract() -> None:
    assert str(Position("eu-west", "flights", 3, 1207)) == "eu-west/flights/3/1207"
    assert str(Position("eu/1", "flüge", 0, 0)) == "eu%2F1/fl%C3%BCge/0/0"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a/b/1",
        "a/b/1/2/3",
        "a//1/2",
        "a/b/-1/2",
        "a/b/1/+2",
        "a/b/1/ 2",
        "a/b/1/",
        "a/b/1/1_0",
        "a/b/1/2.0",
        "a/b/2147483648/1",
        "a/b/1/9223372036854775808",
        "a/b/1/" + "9" * 5000,
        "a/%ff/1/2",
        "a/ü/1/2",
        b"a/\xfc/1/2",
    ],
)
def test_anything_else_is_refused_by_name(text: str | bytes) -> None:
    with pytest.raises(ValueError, match="is not a position") as caught:
        source_position.parse(text)
    assert repr(text) in str(caught.value)


@given(st.text() | st.binary())
def test_garbage_is_a_value_error_or_a_position(text: str | bytes) -> None:
    try:
        position = source_position.parse(text)
    except ValueError:
        return
    assert source_position.parse(str(position)) == position


def test_the_offset_behind_a_known_prefix_is_parsed_if_it_is_a_number() -> None:
    begins = b"eu/t/0/"
    assert source_position.offset_of(b"eu/t/0/17", begins) == 17
    for other in (b"", b"eu/t/0", begins, b"eu/t/1/17", b"17", b"eu/t/0/-1", b"eu/t/0/\xc2\xb2", begins + 5_000 * b"9"):
        assert source_position.offset_of(other, begins) == -1
