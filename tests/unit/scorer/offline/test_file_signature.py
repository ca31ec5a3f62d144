import json
from typing import Any

import pytest

from model_registry.package.signature import Signature
from model_registry.package.signature_schema import parse_signature
from publisher.errors import Fatal
from scorer.offline.file_signature import fit_columns


def signature(*fields: Any) -> Signature:
    inputs = [{"tensor": "x", "dtype": "float32", "fields": list(fields)}]
    return parse_signature(json.dumps({"inputs": inputs, "output": {"tensor": "y"}}))


def test_a_field_is_in_the_column_of_its_name() -> None:
    fitted = fit_columns(signature("a", {"name": "b", "required": False, "default": 0}), ["a", "c"], None, "f")
    assert list(fitted.fields) == ["a"]
    assert fitted.defaults == ["b"]


def test_a_field_at_a_path_is_in_a_column_of_objects_or_of_the_whole_path() -> None:
    nested = signature({"name": "a", "path": "after.a"})
    assert fit_columns(nested, ["after"], None, "f").fields == {"after": None}
    flat = fit_columns(nested, ["after.a"], None, "f")
    assert list(flat.fields) == ["after.a"]
    assert [field.steps for field in flat.signature.fields] == [("after.a",)]


def test_a_field_from_outside_the_event_is_in_the_column_of_its_name() -> None:
    fitted = fit_columns(signature({"name": "k", "from": "key"}), ["k"], None, "f")
    assert [field.source for field in fitted.signature.fields] == [None]


def test_the_column_of_the_id_is_read() -> None:
    assert list(fit_columns(signature("a"), ["a", "id"], "id", "f").fields) == ["a", "id"]
    assert list(fit_columns(signature("a"), ["a"], "id", "f").fields) == ["a"]


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("amount", "f has no column for 'amount'"),
        (
            {"name": "customers.b", "from": "table:customers", "required": False, "default": 0},
            r"'customers\.b' \(table:customers\)",
        ),
        ({"name": "a", "path": "after.a"}, r"'a' \(after\.a\)"),
    ],
)
def test_a_missing_column_is_named(field: Any, message: str) -> None:
    with pytest.raises(Fatal, match=message) as error:
        fit_columns(signature(field), ["amounts"], None, "f")
    assert "its columns: amounts" in error.value.hint
