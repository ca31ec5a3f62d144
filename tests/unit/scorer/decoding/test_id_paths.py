"""Ids by path: the ids that are read, and the errors of invalid ones."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from scorer.dead_letters.reasons import Reason
from scorer.decoding.json.decoder import JsonDecoder, JsonIdReader
from tests.unit.scorer.decoding.formats import signature_of
from tests.unit.scorer.decoding.schema_events import settings_of


@pytest.mark.parametrize(
    ("path", "event", "id_"),
    [
        ("id", {"id": 5}, 5),
        ("after.id", {"after": {"id": "x", "other": []}}, "x"),
        ('"a.b"', {"a.b": "y", "a": {"b": "z"}}, "y"),
        ('"a.b".c[1]', {"a.b": {"c": [{}, 3]}}, 3),
        ("after.id", {"after.id": 1}, None),
        ("after.id", {"after": None}, None),
        ("after.id", {}, None),
    ],
)
def test_ids_by_path(path: str, event: dict[str, Any], id_: Any) -> None:
    value = json.dumps({**event, "f": 1}).encode()
    assert JsonIdReader(path).read_id(value) == id_
    assert list(JsonDecoder(signature_of(("x", "float32", ["f"])), path, 1_000).decode([value]).ids) == [id_]


@pytest.mark.parametrize(
    ("after", "message"),
    [
        ("x", "field 'input.id' (after.id): after is a string, not an object with 'id'"),
        ({"id": []}, "field 'input.id' (after.id): Expected `int | str | null`, got `array`"),
    ],
)
def test_an_invalid_id_is_named_with_its_path(after: Any, message: str) -> None:
    value = json.dumps({"after": after, "f": 1}).encode()
    assert JsonIdReader("after.id").read_id(value) is None
    poison = JsonDecoder(signature_of(("x", "float32", ["f"])), "after.id", 1_000).decode([value]).rejected[0]
    assert (poison.reason, str(poison)) == (Reason.WRONG_TYPE, message)


def test_an_id_may_be_a_field_and_a_field_may_be_called_as_the_id() -> None:
    signature = signature_of(("n", "int64", [{"name": "number", "path": "after.id"}, {"name": "id", "path": "after.x"}]))
    value = json.dumps({"after": {"id": 5, "x": 6}, "id": "top"}).encode()
    for path, id_ in (("after.id", 5), ("id", "top"), (None, None)):
        decoded = JsonDecoder(signature, path, 1_000).decode([value])
        assert (list(decoded.ids), decoded.tensors["n"].tolist()) == ([id_], [[5, 6]])


@pytest.mark.parametrize(
    ("format_", "path", "message"),
    [
        ("json", "a..b", "'a..b' is not a valid path: an error at character 2; a path has names between dots"),
        ("json", "order id", "'order id' is not a valid path: an error at character 6"),
        ("json", "[0].id", "the path '[0].id' must begin with a name, because an event is an object"),
        (
            "json-envelope",
            "meta.id",
            "format json-envelope has the id beside the features; set id to the name of a field, not the path 'meta.id'",
        ),
    ],
)
def test_an_id_with_an_invalid_path_is_refused_at_the_start(format_: str, path: str, message: str) -> None:
    with pytest.raises(ValidationError) as raised:
        settings_of(format_, id=path)
    assert message in raised.value.errors()[0]["msg"]
