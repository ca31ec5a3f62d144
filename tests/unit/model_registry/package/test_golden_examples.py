"""Golden examples: their meaning, and the error for every mistake."""

import json

import pytest

from model_registry import package
from model_registry.errors import Refused
from tests.unit.model_registry.conftest import GOLDEN, MakePackage


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: the line is not JSON"),
        ("[]", "line 2: the line must be an object"),
        ('{"event": {"a": 1}, "score": 1}', "line 2: the line must be an object"),
        ('{"event": [], "score": 1, "tolerance": 0}', "line 2: the line must be an object"),
        ('{"event": {"a": 1}, "score": null, "tolerance": 0}', "the score None is not a number"),
        (
            '{"event": {"a": 1}, "score": [[[[[[[[[[1]]]]]]]]]], "tolerance": 0}',
            "the score [[[[[[[[[[1]]]]]]]]]] is not a number",
        ),
        (
            '{"event": {"a": 1}, "score": [{"label": "a", "score": "1"}], "tolerance": 0}',
            "is not a number, a text, an array or object of these",
        ),
        ('{"event": {"a": 1}, "score": {"a": {}}, "tolerance": 0}', "the score {'a': {}} is not a number"),
        ('{"event": {"a": 1}, "score": {}, "tolerance": 0}', "the score {} is not a number"),
        ('{"event": {"a": 1}, "score": 1, "tolerance": -1}', "the tolerance -1 is not a number of at least 0"),
        ('{"event": {}, "score": 1, "tolerance": 0}', "event field 'a': it is required, but missing or null"),
        ('{"event": {"a": null}, "score": 1, "tolerance": 0}', "event field 'a': it is required, but missing or null"),
        ('{"event": {"a": "x"}, "score": 1, "tolerance": 0}', "event field 'a': 'x' is not a finite float32"),
        ('{"event": {"a": 1, "b": [1]}, "score": 1, "tolerance": 0}', "event field 'b': [1] is not a finite float32"),
    ],
)
def test_a_broken_golden_example_is_named(make_package: MakePackage, line: str, message: str) -> None:
    with pytest.raises(Refused) as caught:
        package.read(make_package(golden=GOLDEN + line + "\n"))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "score",
    [
        "1",
        "[0.5, 0.5]",
        '{"late": 0.5, "minutes": [1, 2]}',
        "[[[1, 2]], []]",
        '"late"',
        "true",
        '[{"label": "cat", "score": 0.5}]',
        '{"boxes": [[1, 2, 3, 4]], "top": [{"label": "cat", "score": 0.5}]}',
    ],
)
def test_scores_of_every_shape(make_package: MakePackage, score: str) -> None:
    line = '{"event": {"a": 1, "b": null, "other": "x"}, "score": ?, "tolerance": 0}'.replace("?", score)
    assert package.read(make_package(golden=line)).golden[0].score == json.loads(score)


def test_array_fields_of_golden_examples(make_package: MakePackage) -> None:
    signature = """{"inputs": [{"tensor": "x", "dtype": "int8", "fields": [{"name": "a", "array": true, "length": 2}]}],
     "output": {"tensor": "p"}}"""
    valid_line = '{"event": {"a": [1, 2]}, "score": 1, "tolerance": 0}'
    assert package.read(make_package("good", signature=signature, golden=valid_line)).golden
    for at, array_text in enumerate(("[1]", "[1, 2, 3]", "[1, 200]", "1")):
        with pytest.raises(Refused, match="event field 'a'"):
            package.read(make_package(f"bad{at}", signature=signature, golden=valid_line.replace("[1, 2]", array_text)))


def test_golden_events_have_their_fields_at_their_paths(make_package: MakePackage) -> None:
    signature = """{"inputs": [{"tensor": "x", "dtype": "int8", "fields": [{"name": "a", "path": "after.list[1]"}]}],
     "output": {"tensor": "p"}}"""
    valid_line = '{"event": {"after": {"list": [null, 5]}}, "score": 1, "tolerance": 0}'
    assert package.read(make_package("good", signature=signature, golden=valid_line)).golden
    with pytest.raises(Refused, match=r"event field 'a' \(after.list\[1\]\): it is required, but missing or null"):
        package.read(make_package("missing", signature=signature, golden=valid_line.replace(", 5", "")))
    with pytest.raises(Refused, match=r"event field 'a' \(after.list\[1\]\): after.list is a number, not an array"):
        package.read(make_package("wrong", signature=signature, golden=valid_line.replace("[null, 5]", "5")))
