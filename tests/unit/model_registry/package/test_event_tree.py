"""Values at paths of events, and the fields that an event can have together."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_registry.package.event_tree import MAX_PARTS, WrongStep, build_event, build_tree, look_up, path_conflict
from model_registry.package.json_path import Step, parse

EVENT = {"after": {"amount": 5, "none": None, "list": [1, {"x": 2}]}, "a.b": 3, "text": "t", "yes": True, "bytes": b""}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("after.amount", 5),
        ("after.list[1].x", 2),
        ('"a.b"', 3),
        ("before", None),
        ("before.amount", None),
        ("after.none.x[3]", None),
        ("after.list[2].x", None),
    ],
)
def test_the_value_at_a_path_is_returned(path: str, value: Any) -> None:
    assert look_up(EVENT, parse(path)) == value


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("text.x", "text is a string, not an object with 'x'"),
        ("after.amount.x", "after.amount is a number, not an object with 'x'"),
        ("yes[0]", "yes is a boolean, not an array with an element 0"),
        ("after[0].x", "after is an object, not an array with an element 0"),
        ("after.list.x", "after.list is an array, not an object with 'x'"),
        ("after.list[0].x.y", "after.list[0] is a number, not an object with 'x'"),
        ("bytes.x", "bytes is of the type bytes, not an object with 'x'"),
    ],
)
def test_a_step_through_another_type_is_an_error(path: str, message: str) -> None:
    with pytest.raises(WrongStep) as caught:
        look_up(EVENT, parse(path))
    assert str(caught.value) == message


def of(*paths: str) -> list[tuple[str, tuple[Step, ...]]]:
    return [(f"f{number}", parse(path)) for number, path in enumerate(paths)]


def test_the_tree_of_fields() -> None:
    assert build_tree(of("a.b", "c", "a.d[1].e", "a.d[0]")) == {"a": {"b": "f0", "d": {1: {"e": "f2"}, 0: "f3"}}, "c": "f1"}


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (("a", "a.b"), "field 'f1' is read at a.b, in conflict with field 'f0' at a"),
        (("a.b.c", "a"), "field 'f1' is read at a, in conflict with field 'f0' inside of it"),
        (("a.b", "a.b"), "field 'f1' is read at a.b, in conflict with field 'f0' at the same path"),
        (("a.b[0]", "a.b.c"), "field 'f1' is read at a.b.c, but a.b is an array for field 'f0'"),
        (("a.b.c", "a.b[0]"), "field 'f1' is read at a.b[0], but a.b is an object for field 'f0'"),
        (("a[9999]", "b[9999]"), "the paths lead through 20001 objects, arrays and array elements; the limit is 4096"),
        (tuple(f"a{n}.b" for n in range(MAX_PARTS)), "the paths lead through 4097 objects"),
    ],
)
def test_fields_that_no_event_has_together(paths: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=r"the paths|read at") as caught:
        build_tree(of(*paths))
    assert str(caught.value).startswith(message)


def test_a_field_beside_others() -> None:
    root = build_tree(of("a.b", "l[2]"))
    assert [path_conflict(root, parse(path)) for path in ("a.c", "l[0].x", "b.c[0]")] == ["", "", ""]
    assert path_conflict(root, parse("a.b.c")) == ", in conflict with field 'f0' at a.b"


steps = st.sampled_from(["a", "b", ""]) | st.integers(0, 3)
paths = st.lists(st.tuples(st.sampled_from("abc"), st.lists(steps, max_size=3)), min_size=1, max_size=6)


@given(paths)
def test_placed_values_are_returned_at_their_paths(drawn: list[tuple[str, list[Step]]]) -> None:
    fields: list[tuple[str, tuple[Step, ...]]] = []
    for number, (first, more) in enumerate(drawn):
        field = (str(number), (first, *more))
        try:
            build_tree([*fields, field])
        except ValueError:
            continue
        fields.append(field)
    event = build_event((path, name) for name, path in fields)
    assert [look_up(event, path) for _, path in fields] == [name for name, _ in fields]
