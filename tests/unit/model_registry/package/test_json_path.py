"""Paths into events."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_registry.package.json_path import MAX_STEPS, canonical, format_path, parse, parse_object_path


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("amount", ("amount",)),
        ("after.amount", ("after", "amount")),
        ("items[0].price", ("items", 0, "price")),
        ("[3][12]", (3, 12)),
        ('"a b.c".x', ("a b.c", "x")),
        ('"\\"[0]"[1]', ('"[0]', 1)),
        ('""', ("",)),
    ],
)
def test_a_path_has_steps(text: str, steps: tuple[str | int, ...]) -> None:
    assert parse(text) == steps


@pytest.mark.parametrize(
    "text", ["", ".", "a.", ".a", "a..b", "a.[0]", "a[", "a[-1]", "a[x]", 'a"b"', "a b", '"a', '"\\x"', '"\\ud800"', "[0]a"]
)
def test_an_invalid_path_is_refused_with_the_position(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a valid (path|quoted name)"):
        parse(text)


def test_the_steps_of_a_path_are_limited() -> None:
    assert len(parse(".".join("a" * MAX_STEPS))) == MAX_STEPS
    with pytest.raises(ValueError, match="17 steps"):
        parse(".".join("a" * (MAX_STEPS + 1)))


def test_a_path_into_an_object_begins_with_a_name() -> None:
    assert parse_object_path("a[0]") == ("a", 0)
    assert [canonical(text) for text in ('"a"."b.c"', "a[00]", "header:ce_id")] == ['a."b.c"', "a[0]", "header:ce_id"]
    with pytest.raises(ValueError, match="must begin with a name"):
        parse_object_path("[0].a")


@given(st.lists(st.text(st.characters(codec="utf-8")) | st.integers(0, 999_999), min_size=1, max_size=MAX_STEPS))
def test_a_written_path_is_read_back(steps: list[str | int]) -> None:
    assert parse(format_path(steps)) == tuple(steps)
